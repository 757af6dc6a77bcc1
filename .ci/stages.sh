# Sourced by .ci/test and .ci/run: `stage NAME COMMAND…` runs one stage and remembers its time; `stage_times` prints all.
stage_names=()
stage_seconds=()

stage() {
    local name=$1 start=$SECONDS status=0
    shift
    printf '\n=== %s\n' "$name"
    "$@" || status=$?
    stage_names+=("$name")
    stage_seconds+=($((SECONDS - start)))
    if [ "$status" -ne 0 ]; then
        printf '\n=== %s failed with status %s after %s s\n' "$name" "$status" "$((SECONDS - start))" >&2
        stage_times
        exit "$status"
    fi
}

stage_times() {
    printf '\nSeconds by stage:\n'
    local i
    for i in "${!stage_names[@]}"; do
        printf '%6s  %s\n' "${stage_seconds[$i]}" "${stage_names[$i]}"
    done
}
