//! Files that `accel` writes: which ones it replaces, and their properties afterwards.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use crate::accel::{Ended, accel, empty_folder, of_pytorch, run};

const SNAPSHOT: &str = "tiny_transformer.snapshot.pickle";
const REPLACED: &str = "the output would replace the input: choose another name";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn an_output_replaced_the_input_under_another_name() {
    let folder = empty_folder("input_replaced");
    let content = fs::read(of_pytorch(SNAPSHOT)).unwrap();
    // Every output may have this extension.
    let input = folder.join("input.html");
    fs::write(&input, &content).unwrap();
    let [link, hard] = ["link.html", "hard.html"].map(|name| folder.join(name));
    symlink("input.html", &link).unwrap();
    fs::hard_link(&input, &hard).unwrap();
    let dotted = folder.join("./../input_replaced/./input.html");
    for output in [&input, &link, &hard, &dotted] {
        for (command, option) in
            [("convert", "-o"), ("replay", "--snapshot"), ("report", "-o"), ("report", "--perfetto")]
        {
            let message = format!("{}: {REPLACED}", output.display());
            run(&[command, text(&input), option, text(output)]).fails(1, &message);
            let mut command = accel(&[command, "-", option, text(output)]);
            Ended::of(command.stdin(File::open(&input).unwrap()).output().unwrap()).fails(1, &message);
            assert!(fs::read(&input).unwrap() == content && output.exists());
        }
    }
    let picture = folder.join("sizes.svg");
    fs::write(&picture, &content).unwrap();
    run(&["report", text(&picture), "--pictures", text(&folder)]).fails(1, REPLACED);
    assert!(fs::read(&picture).unwrap() == content);
    assert!(!folder.join("memory.svg").exists(), "refused before any picture is written");
}

/// Returns arguments for every way to write this file.
fn writers(output: &Path) -> [Vec<String>; 4] {
    let snapshot = of_pytorch(SNAPSHOT);
    let output = text(output);
    [
        vec!["convert", &snapshot, "-o", output],
        vec!["replay", "--plain", &snapshot, "--snapshot", output],
        vec!["report", &snapshot, "-o", output],
        vec!["report", &snapshot, "--perfetto", output],
    ]
    .map(|arguments| arguments.into_iter().map(str::to_owned).collect())
}

fn write(arguments: &[String]) {
    let ended = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(ended.status, Some(0), "{arguments:?}: {}", ended.error);
}

#[test]
fn a_private_file_became_public_when_it_was_replaced() {
    let folder = empty_folder("modes");
    let output = folder.join("out.html");
    let ordinary = File::create(folder.join("ordinary")).unwrap().metadata().unwrap();
    for arguments in writers(&output) {
        let _ = fs::remove_file(&output);
        write(&arguments);
        assert_eq!(fs::metadata(&output).unwrap().mode(), ordinary.mode(), "{arguments:?}");
        for mode in [0o600, 0o664] {
            fs::write(&output, "old").unwrap();
            // Without the right to change owners, the owner stays the same.
            let _ = chown(&output, Some(12_345), Some(54_321));
            fs::set_permissions(&output, fs::Permissions::from_mode(mode)).unwrap();
            let old = fs::metadata(&output).unwrap();
            write(&arguments);
            let new = fs::metadata(&output).unwrap();
            assert!(new.len() > 1000 && new.ino() != old.ino(), "{arguments:?}");
            assert_eq!((new.mode(), new.uid(), new.gid()), (old.mode(), old.uid(), old.gid()), "{arguments:?}");
        }
    }
}

#[test]
fn a_file_that_may_not_be_written_is_not_replaced() {
    let output = empty_folder("read_only").join("out.html");
    for arguments in writers(&output) {
        let _ = fs::remove_file(&output);
        fs::write(&output, "old").unwrap();
        fs::set_permissions(&output, fs::Permissions::from_mode(0o444)).unwrap();
        if File::options().write(true).open(&output).is_ok() {
            write(&arguments); // root may write it
            continue;
        }
        let message = format!("{}: cannot be written: Permission denied", output.display());
        run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).fails(1, &message);
        assert_eq!(fs::read_to_string(&output).unwrap(), "old");
    }
}

#[test]
fn links_stay_and_devices_are_written_directly() {
    let folder = empty_folder("links");
    let [link, target] = ["link.html", "target.html"].map(|name| folder.join(name));
    symlink("target.html", &link).unwrap();
    for arguments in writers(&link) {
        for there in [false, true] {
            if !there {
                let _ = fs::remove_file(&target);
            }
            write(&arguments);
            assert!(link.is_symlink() && target.metadata().unwrap().len() > 1000, "{arguments:?}");
        }
    }
    for arguments in [["convert", "-o"], ["replay", "--snapshot"], ["report", "--perfetto"]] {
        let ended = run(&[arguments[0], &of_pytorch(SNAPSHOT), arguments[1], "/dev/null"]);
        assert_eq!(ended.status, Some(0), "{}", ended.error);
        assert!(!Path::new("/dev/null").is_file());
    }
}

#[test]
fn a_missing_folder_had_no_name() {
    let folder = empty_folder("missing");
    let output = folder.join("no/such/out.html");
    let missing = folder.join("no/such");
    let message = format!("{}: cannot be written: the folder {} does not exist\n", output.display(), missing.display());
    for arguments in writers(&output) {
        run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).fails(1, &message);
    }
    run(&["verify", "--backend", "host", "-o", text(&output)]).fails(1, &message);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);

    let mut command = accel(&["convert", "-"]);
    command.env("TMPDIR", &missing).stdin(File::open(of_pytorch(SNAPSHOT)).unwrap());
    let message = format!("standard input: cannot be saved to a temporary file in {}: No such file", missing.display());
    Ended::of(command.output().unwrap()).fails(1, &message);
}
