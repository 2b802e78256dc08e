# Runs the steps, two at a time. Read by .ci/run.
# shellcheck shell=bash disable=SC2154 # .ci/run sets `about`, `folder`, `chosen`, `passed` and `closing`

waiting=()            # names of the steps that have not begun
declare -A running=() # names of those that run, by process
declare -A began=()   # when they began, by name
failed=               # the process of a step that has failed
times=

# Runs these steps, and ends the script with the first that fails.
run_steps() {
  local process status
  waiting=("$@")
  while [ ${#waiting[@]} != 0 ] || [ ${#running[@]} != 0 ]; do
    while [ ${#running[@]} -lt 2 ] && choose_next; do start; done
    status=0
    wait -n -p process "${!running[@]}" || status=$?
    if [ $status != 0 ]; then
      failed=$process
      exit $status
    fi
    report "$process"
  done
}

# Sets `next` to the place of the first waiting step that does not build where a running one builds. Fails if there is
# none.
choose_next() {
  local name busy=' '
  for name in "${running[@]}"; do busy+="${folder[$name]} "; done
  for next in "${!waiting[@]}"; do
    name=${folder[${waiting[next]}]}
    if [ "$name" = own ] || [[ $busy != *" $name "* ]]; then return; fi
  done
  return 1
}

# Starts the step at that place. A step that is the only one prints at once.
start() {
  local name=${waiting[next]}
  waiting=("${waiting[@]:0:next}" "${waiting[@]:next+1}")
  began[$name]=$SECONDS
  if [ ${#chosen[@]} = 1 ]; then
    announce "$name"
    run_step "$name" &
  else
    printf -- '-- %s begins\n' "$name"
    run_step "$name" >"$scratch/$name.output" 2>&1 &
  fi
  running[$!]=$name
}
announce() { printf '\n== %s: %s\n' "$1" "${about[$1]}"; }

# Runs a step in this process, which `&` has made for it.
run_step() {
  trap - INT TERM
  trap 'times >"$scratch/$current.times"' EXIT
  current=$1
  "step_$current"
}

# Prints what the step in this process has printed, and keeps how long it took. Arguments: the process, and what
# else to say of it.
report() {
  local name=${running[$1]}
  unset "running[$1]"
  if [ -e "$scratch/$name.output" ]; then
    announce "$name"
    cat "$scratch/$name.output"
  fi
  times+=$(printf '%6d s %6d s  %s' $((SECONDS - ${began[$name]})) "$(processor_seconds "$name")" "$name${2-}")$'\n'
}

# Prints how many seconds of processor time the commands of a step took, as far as they have ended.
processor_seconds() {
  if [ ! -e "$scratch/$1.times" ]; then echo 0; return; fi
  awk -F '[ ms]+' 'NR == 2 { printf "%d", 60 * $1 + $2 + 60 * $3 + $4 }' "$scratch/$1.times"
}

# Runs when the script ends for any reason. Ends the steps that still run. Prints how long each step took, and whether
# all steps passed. The exit status does not show this: it is 0 after a signal between two commands.
finish() {
  local process
  for process in "${!running[@]}"; do
    if [ "$process" = "$failed" ]; then continue; fi
    end_all_of "$process"
    report "$process" ': stopped'
  done
  # What a reader looks for comes last.
  if [ -n "$failed" ]; then report "$failed" ': FAILED'; fi
  printf '\n  time, and processor time\n%s' "$times"
  if [ -n "$passed" ]; then
    printf '%6d s in total\n\n%s' "$SECONDS" "$closing"
    if [ -e "$scratch/untested" ]; then cat "$scratch/untested"; fi
    echo
  fi
  rm -rf "$scratch" 2>/dev/null || as_root rm -rf "$scratch"
}

# Ends a process and all that descend from it.
end_all_of() {
  local child children
  children=$(cat "/proc/$1/task/$1/children" 2>/dev/null) || true
  kill "$1" 2>/dev/null || true
  for child in $children; do end_all_of "$child"; done
}
