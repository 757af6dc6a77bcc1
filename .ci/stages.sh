# Sourced by .ci/test, .ci/run and .ci/test-pythons: `stage NAME COMMAND…` runs one stage and keeps its time, and the next
# stage runs whatever its status. `beside FUNCTION` runs the stages of a function in the background, and `rejoin` waits for
# them. `stage_times` prints all times, then what failed with the command that repeats it.
# `stages_wanted`, where it is not empty, are the beginnings of the names that run.
stages_wanted=()
stage_names=()
stage_seconds=()
stage_failures=0
beside_folder=
# One list for the stages of a stage as well (`make test` within .ci/run), and for the tests that failed (tests/conftest.py).
own_failures=
if [ -z "${STAGES_FAILED:-}" ]; then
    STAGES_FAILED=$(mktemp "${TMPDIR:-/tmp}/slopewise-failed.XXXXXX")
    export STAGES_FAILED
    own_failures=$STAGES_FAILED
fi
trap 'rm -rf "$own_failures" "$beside_folder"' EXIT

# Ctrl-C ends all stages, once what runs beside them has ended: after a command that handles it itself, as pytest does,
# bash would go on with the next stage.
trap 'wait; exit 130' INT

wanted() {
    local each
    [ "${#stages_wanted[@]}" -eq 0 ] && return 0
    for each in "${stages_wanted[@]}"; do
        case $1 in "$each" | "$each"[:\ ]*) return 0 ;; esac # by words: "make test" is not "make test-shares"
    done
    return 1
}

stage() {
    local name=$1 start=$SECONDS status=0
    shift
    wanted "$name" || return 0
    printf '\n=== %s\n' "$name"
    "$@" || status=$?
    stage_names+=("$name")
    stage_seconds+=($((SECONDS - start)))
    if [ "$status" -ne 0 ]; then
        printf '\n=== %s failed with status %s after %s s\n' "$name" "$status" "$((SECONDS - start))" >&2
        printf 'bash .ci/%s "%s"\n' "${0##*/}" "$name" >>"$STAGES_FAILED"
        stage_failures=$((stage_failures + 1))
    fi
}

beside() {
    beside_folder=$(mktemp -d "${TMPDIR:-/tmp}/slopewise-beside.XXXXXX")
    {
        trap 'exit 130' INT
        stage_names=() stage_seconds=() stage_failures=0
        "$1"
        for i in "${!stage_names[@]}"; do
            printf '%s %s\n' "${stage_seconds[$i]}" "${stage_names[$i]}" >>"$beside_folder/times"
        done
        exit "$stage_failures"
    } >"$beside_folder/output" 2>&1 &
    beside=$!
}

# Print what the stages of `beside` have printed, and count them with the others.
rejoin() {
    local failures=0 seconds name
    wait "$beside" || failures=$?
    cat "$beside_folder/output"
    touch "$beside_folder/times"
    while read -r seconds name; do
        stage_names+=("$name")
        stage_seconds+=("$seconds")
    done <"$beside_folder/times"
    stage_failures=$((stage_failures + failures))
    rm -r "$beside_folder"
    beside_folder=
}

stage_times() {
    printf '\nSeconds by stage:\n'
    local i
    for i in "${!stage_names[@]}"; do
        printf '%6s  %s\n' "${stage_seconds[$i]}" "${stage_names[$i]}"
    done
    [ "$stage_failures" -eq 0 ] && return 0
    printf '\nFailed; to repeat each:\n'
    cat "$STAGES_FAILED"
    return 1
}
