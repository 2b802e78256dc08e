//! The benchmarks of the workspace are in the files next to this folder.
