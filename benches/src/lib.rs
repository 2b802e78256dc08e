//! Benchmarks of the workspace: see the files beside this folder.
