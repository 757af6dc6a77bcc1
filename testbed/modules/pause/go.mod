module slopewise.dev/testbed/pause

go 1.24.0
