use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;

const MAIN: u64 = 1;
const SIDE: u64 = 2;

fn why(result: DriverResult<impl std::fmt::Debug>) -> (DriverErrorKind, &'static str) {
    result.map_err(|error| (error.kind, error.name)).unwrap_err()
}

fn invalid(result: DriverResult<impl std::fmt::Debug>, word: &str) {
    let (kind, why) = why(result);
    assert!(kind == DriverErrorKind::InvalidArgument && why.contains(word), "{kind:?}: {why}");
}

/// What is ordered before something: plain sets, which each step copies.
#[derive(Clone, Debug, Default)]
struct Model {
    /// For each stream that takes part, all that comes before what it captures next.
    before: Vec<Option<BTreeSet<usize>>>,
    /// For each event, what came before it.
    events: Vec<Option<BTreeSet<usize>>>,
    /// What must be done before each piece of work or mark, and whether it is work.
    all: Vec<(BTreeSet<usize>, bool)>,
}

impl Model {
    fn add(&mut self, stream: usize, is_work: bool) {
        let before = self.before[stream].as_mut().unwrap();
        self.all.push((before.clone(), is_work));
        before.insert(self.all.len() - 1);
    }
}

#[test]
fn random_captures_are_ordered_as_sets_of_predecessors_say() {
    const STREAMS: usize = 4;
    const EVENTS: usize = 5;
    let mut ends = [0; 2];
    let mut preceding = [0; 2];
    for seed in 0..2000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let captures = Captures::new();
        captures.begin(0).unwrap();
        let mut model = Model { before: vec![None; STREAMS], events: vec![None; EVENTS], ..Model::default() };
        model.before[0] = Some(BTreeSet::new());
        let mut events: Vec<Option<EventCapture>> = vec![None; EVENTS];
        let mut marks = Vec::new();
        for _ in 0..random.usize(..30) {
            let (stream, event) = (random.usize(..STREAMS), random.usize(..EVENTS));
            match (random.u8(..8), &model.before[stream]) {
                (0..=2, before) => {
                    let number = model.all.len();
                    assert_eq!(captures.record(stream as u64, || number), before.is_some());
                    if before.is_some() {
                        model.add(stream, true);
                    }
                }
                (3, before) => {
                    let mark = captures.mark(stream as u64);
                    assert_eq!(mark.is_some(), before.as_ref().is_some_and(|before| !before.is_empty()));
                    if let Some(mark) = mark {
                        marks.push((model.all.len(), mark));
                        model.add(stream, false);
                    }
                }
                (4 | 5, before) => {
                    model.events[event] = before.clone();
                    events[event] = captures.record_event(stream as u64);
                }
                (_, before) => {
                    let captured = captures.wait(stream as u64, events[event].as_ref());
                    match (before, &model.events[event]) {
                        (Some(_), None) => invalid(captured, "outside the capture"),
                        (None, None) => assert_eq!(captured, Ok(false)),
                        (before, Some(awaited)) => {
                            assert_eq!(captured, Ok(true));
                            let before = before.iter().flatten().chain(awaited).copied().collect();
                            model.before[stream] = Some(before);
                        }
                    }
                }
            }
            let numbers: Vec<u64> = marks.iter().map(|(_, mark)| *mark).collect();
            for (stream, before) in model.before.iter().enumerate() {
                assert_eq!(captures.is_capturing(stream as u64), before.is_some());
                let expected: Vec<bool> =
                    marks.iter().map(|(place, _)| before.as_ref().is_some_and(|all| all.contains(place))).collect();
                expected.iter().for_each(|precedes| preceding[usize::from(*precedes)] += 1);
                assert_eq!(captures.precede(&numbers, stream as u64), expected, "seed {seed}");
            }
        }
        let joined = model.before[0].as_ref().unwrap();
        let is_joined = model.all.iter().enumerate().all(|(place, (_, is_work))| joined.contains(&place) || !is_work);
        ends[usize::from(is_joined)] += 1;
        match captures.end(0) {
            Ok(nodes) if is_joined => check(&nodes, &model, seed),
            result => {
                assert!(!is_joined, "seed {seed}");
                invalid(result, "has not waited");
            }
        }
        assert!((0..STREAMS).all(|stream| !captures.is_capturing(stream as u64)));
    }
    assert!(ends.iter().chain(&preceding).all(|count| *count > 100), "{ends:?} {preceding:?}");
}

/// Compares everything that comes before each piece of work with the model.
fn check(nodes: &[GraphNode<usize>], model: &Model, seed: u64) {
    let mut done: Vec<BTreeSet<usize>> = Vec::new();
    for node in nodes {
        let before: BTreeSet<usize> =
            node.after.iter().flat_map(|&earlier| done[earlier].iter().copied().chain([nodes[earlier].work])).collect();
        let expected: BTreeSet<usize> =
            model.all[node.work].0.iter().copied().filter(|&earlier| model.all[earlier].1).collect();
        assert_eq!(before, expected, "seed {seed}");
        done.push(before);
    }
    assert_eq!(nodes.len(), model.all.iter().filter(|(_, is_work)| *is_work).count());
}

#[test]
fn a_stream_takes_part_in_one_capture() {
    let captures = Captures::<()>::new();
    invalid(captures.end(MAIN), "does not capture");
    assert_eq!((captures.capture_of(MAIN), captures.mark(MAIN)), (None, None));
    captures.begin(MAIN).unwrap();
    captures.begin(SIDE).unwrap();
    invalid(captures.begin(MAIN), "already");
    let numbers = [MAIN, SIDE].map(|stream| captures.capture_of(stream).unwrap());
    assert_ne!(numbers[0], numbers[1]);
    let event = captures.record_event(MAIN);
    invalid(captures.wait(SIDE, event.as_ref()), "another capture");
    invalid(captures.wait(SIDE, None), "outside the capture");
    assert_eq!(captures.end(MAIN), Ok(Vec::new()));
    invalid(captures.wait(3, event.as_ref()), "over");
    invalid(captures.wait(SIDE, event.as_ref()), "another capture");
    captures.begin(MAIN).unwrap();
    assert!(!numbers.contains(&captures.capture_of(MAIN).unwrap()));
    assert_ne!(Captures::<()>::new().begin(MAIN).map(|()| captures.capture_of(MAIN)), Ok(Some(numbers[1])));
}

#[test]
fn a_capture_that_cannot_end_well_is_over() {
    let forked = || {
        let captures = Captures::new();
        captures.begin(MAIN).unwrap();
        assert_eq!(captures.wait(SIDE, captures.record_event(MAIN).as_ref()), Ok(true));
        captures
    };
    let over = |captures: &Captures<Arc<()>>| {
        assert!([MAIN, SIDE].iter().all(|stream| !captures.is_capturing(*stream) && !captures.any()));
        captures.begin(SIDE).unwrap();
        assert_eq!(captures.end(SIDE), Ok(Vec::new()));
    };
    let captures = forked();
    assert_eq!(captures.end(MAIN), Ok(Vec::new()), "the other stream captured nothing");
    over(&captures);

    let captures = forked();
    let work = Arc::new(());
    assert!(captures.record(SIDE, || Arc::clone(&work)));
    invalid(captures.end(MAIN), "has not waited");
    assert_eq!(Arc::strong_count(&work), 1, "what was captured is dropped");
    over(&captures);

    let captures = forked();
    invalid(captures.end(SIDE), "another stream began");
    over(&captures);

    let captures = forked();
    captures.invalidate(SIDE);
    assert!(captures.is_capturing(MAIN));
    invalid(captures.end(MAIN), "broken");
    over(&captures);

    let captures = forked();
    captures.abandon(SIDE);
    assert!(captures.is_capturing(MAIN), "only the stream that began the capture ends it");
    captures.abandon(MAIN);
    over(&captures);
}

#[test]
fn calls_that_cannot_be_captured_are_refused_while_the_stream_captures() {
    let captures = Captures::<()>::new();
    assert_eq!(captures.refuse_captured(MAIN, "synchronize"), Ok(()));
    assert!(captures.record_event(MAIN).is_none());
    captures.begin(MAIN).unwrap();
    invalid(captures.refuse_captured(MAIN, "synchronize"), "cannot be captured");
    assert_eq!(captures.refuse_captured(SIDE, "synchronize"), Ok(()));
    assert!(!captures.record(SIDE, || ()));
    let error = captures.record_event(MAIN).unwrap().unanswered("is_complete");
    assert_eq!((error.kind, error.call), (DriverErrorKind::InvalidArgument, "is_complete"));
    captures.end(MAIN).unwrap();
    assert_eq!(captures.refuse_captured(MAIN, "synchronize"), Ok(()));
}

#[test]
fn no_lock_is_taken_while_nothing_is_captured() {
    let captures = Captures::<()>::new();
    let held = lock(&captures.captures);
    assert!(!captures.record(MAIN, || ()) && !captures.is_capturing(MAIN));
    assert_eq!((captures.wait(MAIN, None), captures.refuse_captured(MAIN, "copy")), (Ok(false), Ok(())));
    assert!(captures.record_event(MAIN).is_none());
    captures.abandon(MAIN);
    drop(held);
}
