"""The commands of the `slopewise` command line, one file each. Data goes to stdout, messages and progress to stderr.

Exit codes: 0 ok, 1 error, 2 usage, 4 data source unreachable, 128 + signal when stopped before the end of the work
(0 for the controller of a cluster, whose work has no end). Each command checks its options before anything starts.
Imports that take long are inside the functions.
"""
