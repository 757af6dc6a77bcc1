#!/bin/sh
# A training that is no Python and prints its loss in a form of its own: jobs.yaml has the pattern that finds it.
round=1
while [ "$round" -le 100 ]; do
    sleep 0.3
    echo "$(date +%T) round $round of 100: cost is $((10000 / round))e-4"
    round=$((round + 1))
done
