#!/usr/bin/env bash
# The gate as any CI system runs it; see docs/ci.md. From the environment, all of them may be empty:
#   SPECS ARGUMENTS SHARD MERGE BASELINE REPORT
# Writes into REPORT (reports/out): records, summary, failures; of a whole run report.html, junit.xml and the statement, too.
# Exit status: 0 the run is whole and nothing fails, 1 a failure or a regression, else wrong input or a run that is not whole.
set -uo pipefail
report="${REPORT:-reports/out}"
format=text
[ "${GITHUB_ACTIONS:-}" = true ] && format=github

read_words() { # the words of $1 as a shell splits them; nothing in them is run
  words=()
  while IFS= read -r word; do words+=("$word"); done < <(printf '%s' "$1" | xargs -r -n1 printf '%s\n')
}

if [ -n "${MERGE:-}" ]; then
  read_words "$MERGE"
  quantizer report merge "${words[@]}" -o "$report" || exit 2
  status=0
  if [ -n "${BASELINE:-}" ]; then
    quantizer report diff "$BASELINE" "$report" --fail-on new-failure,regression,coverage || status=$?
  fi
else
  read_words "${SPECS:-}"
  quantizer spec lint ${words[@]+"${words[@]}"} --format "$format" || exit 2
  read_words "${SPECS:-} ${ARGUMENTS:-}"
  pytest ${words[@]+"${words[@]}"} --op-report="$report" ${SHARD:+"--op-shard=$SHARD"} \
    ${BASELINE:+"--op-baseline=$BASELINE"} --junit-xml="$report/pytest.xml"
  status=$?
fi

# What the exit status cannot tell, the folder does; of a shard the job that merges asks.
if [ -z "${SHARD:-}" ] && [ "$status" -le 1 ]; then
  quantizer report show "$report" --check || { checked=$?; [ "$checked" -le "$status" ] || status=$checked; }
fi
if [ -z "${SHARD:-}" ] && [ "$status" -le 1 ]; then
  quantizer report html "$report" ${BASELINE:+--baseline "$BASELINE"} -o "$report/report.html" || exit 2
  quantizer report junit "$report" -o "$report/junit.xml" || exit 2
  quantizer report statement "$report" -o "$report/statement" || exit 2
fi
exit "$status"
