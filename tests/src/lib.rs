//! Tests of the workspace as a whole: see the files beside this folder.
