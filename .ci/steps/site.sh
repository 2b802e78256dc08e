# The documentation site, and the commands that it shows.
# shellcheck shell=bash disable=SC2154 # `built` and `scratch` are set by common.sh and run

step site debug 'the documentation site builds, and each of its links leads to a page and a heading'
step_site() {
  cargo_tool mdbook 0.5.4 --no-default-features --features search
  mdbook build --dest-dir "$scratch/site"
  cargo run --quiet --locked --package accelerator-site -- check "$scratch/site"
}

step commands release 'the commands of the getting-started page and of the cookbook work'
step_commands() {
  programs
  mkdir "$scratch/commands"
  (
    cd "$scratch/commands"
    PATH=$built:$built/examples:$PATH
    train_mlp --steps 3 --stats run.jsonl --snapshot run.pickle
    accel report run.jsonl -o report.html
    accel tracker run.jsonl --top 5
    accel report run.pickle -o segments.html
    mv run.pickle snapshot.pickle
    bash "$OLDPWD/tests/cookbook/replay_a_job.sh"
  )
}
