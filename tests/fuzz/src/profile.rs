//! What is drawn from a file.

use accelerator_tracker::picture::Profile;
use accelerator_tracker::{perfetto, report};

/// Checks that a report can be made, and that the file for Perfetto is valid JSON.
pub(crate) fn check_profile(profile: &Profile) {
    let mut trace = Vec::new();
    perfetto::write(profile, &mut trace).unwrap();
    serde_json::from_slice::<serde_json::Value>(&trace).unwrap();
    assert!(report::html(profile).ends_with("</html>\n"));
}
