use std::collections::HashMap;
use std::sync::Arc;

use accelerator_conformance::{Controls, Sim};
use accelerator_core::{Accelerator, Bytes};
use accelerator_tracker::picture::{MapSegment, Marker, Moment, Profile, Sample, Span};
use accelerator_tracker::tracker::MemoryUse;

use crate::backends::simulated;
use crate::failure::Failure;
use crate::replay::{MEMORY_OF_ALLOCATION, Outcome, Place, Replayer, Setup};
use crate::trace::{Line, Op, Source};

/// The memory that a line needs with its name, its sample and its span, in bytes.
const MEMORY_OF_LINE: u64 = 256;

/// A trace, and the information in its comments.
struct Trace {
    name: String,
    lines: Vec<Named>,
    markers: Vec<Marker>,
    about: Option<String>,
}

/// A line and its name.
struct Named {
    line: Line,
    name: Arc<str>,
}

/// The memory of a simulated device during a trace.
pub(super) fn profile(mut source: Source, mut setup: Setup) -> Result<Profile, Failure> {
    // Twice, since a profile needs the same amount for an allocation again.
    source.charge(MEMORY_OF_LINE, 2 * MEMORY_OF_ALLOCATION);
    let first = setup.take_from(&mut source)?;
    let trace = Trace::read(source, first)?;
    if trace.lines.is_empty() {
        return Err(Failure::NothingToShow { name: trace.name, lacks: "operations" });
    }
    let mut profile = Profile {
        title: trace.name.clone(),
        facts: trace.about.iter().map(|about| ("about".to_owned(), about.clone())).collect(),
        allocated_before: Some(0),
        markers: trace.markers.clone(),
        ..Profile::default()
    };
    replay(&trace, &setup, &mut Sampler { profile: &mut profile, live: HashMap::new() })?;
    let mut wanted = profile.moments_of_interest(Profile::EVEN_MOMENTS);
    let last = trace.lines.len().saturating_sub(1);
    wanted.retain(|(call, _)| *call < last);
    wanted.push((last, "the end".to_owned()));
    replay(&trace, &setup, &mut Mapper { profile: &mut profile, wanted, next: 0, names: HashMap::new() })?;
    Ok(profile)
}

/// Observes a replay.
trait Watcher {
    fn after(&mut self, call: usize, line: &Named, outcome: &Outcome, replayer: &Replayer<Sim>);
    fn end(&mut self, replayer: &Replayer<Sim>);
}

fn replay(trace: &Trace, setup: &Setup, watcher: &mut impl Watcher) -> Result<(), Failure> {
    let accelerator = Accelerator::new(simulated(setup.capacity), 0, setup.config)?;
    let mut replayer = Replayer::new(accelerator, false);
    for (call, line) in trace.lines.iter().enumerate() {
        let outcome = replayer.step(&line.line);
        let outcome = outcome.map_err(|error| Failure::in_line(&trace.name, line.line.number, error))?;
        watcher.after(call, line, &outcome, &replayer);
    }
    watcher.end(&replayer);
    Ok(())
}

/// Records the curves.
struct Sampler<'a> {
    profile: &'a mut Profile,
    live: HashMap<u64, usize>,
}

impl Watcher for Sampler<'_> {
    fn after(&mut self, call: usize, line: &Named, outcome: &Outcome, replayer: &Replayer<Sim>) {
        let statistics = replayer.accelerator().allocator().statistics();
        let (name, memory) = (line.name.clone(), MemoryUse::from(&statistics));
        self.profile.samples.push(Sample { name, time_us: 0, memory });
        match (&line.line.op, outcome) {
            (Op::Alloc { id, bytes, .. } | Op::AllocAt { id, bytes, .. }, Outcome::Placed(..)) => {
                self.live.insert(*id, self.profile.spans.len());
                self.profile.spans.push(Span { bytes: *bytes, start: Some(call), end: None });
            }
            (Op::Free { id }, _) => {
                if let Some(span) = self.live.remove(id) {
                    self.profile.spans[span].end = Some(call);
                }
            }
            (_, Outcome::Restored(restored)) => {
                for Place { id, .. } in &restored.freed {
                    if let Some(span) = self.live.remove(id) {
                        self.profile.spans[span].end = Some(call);
                    }
                }
                for Place { id, bytes, .. } in &restored.allocated {
                    self.live.insert(*id, self.profile.spans.len());
                    self.profile.spans.push(Span { bytes: *bytes, start: Some(call), end: None });
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, replayer: &Replayer<Sim>) {
        let accelerator = replayer.accelerator();
        self.profile.statistics = accelerator.allocator().statistics().entries();
        self.profile.capacity = Some(accelerator.properties().total_memory);
        self.profile.facts.push(("device".to_owned(), accelerator.properties().name.clone()));
    }
}

/// Records the segments at selected moments.
struct Mapper<'a> {
    profile: &'a mut Profile,
    wanted: Vec<(usize, String)>,
    next: usize,
    /// The operation that allocated the block at an address.
    names: HashMap<u64, Arc<str>>,
}

impl Watcher for Mapper<'_> {
    fn after(&mut self, call: usize, line: &Named, outcome: &Outcome, replayer: &Replayer<Sim>) {
        if let Outcome::Placed(_, place) = outcome {
            self.names.insert(place.wrapping_add(Sim::BASE), line.name.clone());
        }
        if let Some((_, name)) = self.wanted.get(self.next).filter(|(at, _)| *at == call) {
            let scope = |address| self.names.get(&address).cloned().unwrap_or_default();
            let snapshot = replayer.accelerator().allocator().snapshot();
            let segments = MapSegment::of(&snapshot, scope);
            self.profile.pool_names.extend(snapshot.pool_names);
            self.profile.moments.push(Moment { name: name.clone(), call, segments });
            self.next += 1;
        }
    }

    fn end(&mut self, _: &Replayer<Sim>) {}
}

impl Trace {
    fn read(mut source: Source, first: Option<Line>) -> Result<Self, Failure> {
        let mut trace = Self { name: source.name().to_owned(), lines: Vec::new(), markers: Vec::new(), about: None };
        let mut names = Names::default();
        trace.about = source.comments().iter().find(|comment| !is_marked(comment)).cloned();
        let mut next = first;
        while let Some(line) = next {
            for comment in source.comments() {
                if let Some(scope) = comment.strip_prefix("scope ") {
                    names.scope = Some(names.once(scope.to_owned()));
                } else if comment.starts_with("step ") {
                    trace.markers.push(Marker { name: names.once(comment.clone()), call: trace.lines.len() });
                }
            }
            trace.lines.push(Named { name: names.of(&line.op), line });
            next = source.next().transpose()?;
        }
        Ok(trace)
    }
}

/// Returns whether a comment has a special meaning, or is empty.
fn is_marked(comment: &str) -> bool {
    ["trace ", "scope ", "step "].iter().any(|start| comment.starts_with(start)) || comment.is_empty()
}

/// The names of operations. Each text is stored once.
#[derive(Default)]
struct Names {
    scope: Option<Arc<str>>,
    texts: HashMap<String, Arc<str>>,
    sizes: HashMap<u64, u64>,
}

impl Names {
    fn of(&mut self, op: &Op) -> Arc<str> {
        let name = match op {
            Op::Alloc { id, bytes, stream } | Op::AllocAt { id, bytes, stream, .. } => {
                self.sizes.insert(*id, *bytes);
                match (&self.scope, stream) {
                    (Some(scope), _) => return scope.clone(),
                    (None, 0) => format!("alloc {}", Bytes(*bytes)),
                    (None, stream) => format!("alloc {}, stream {stream}", Bytes(*bytes)),
                }
            }
            Op::Free { id } => format!("free {}", Bytes(self.sizes.remove(id).unwrap_or(0))),
            Op::Record { id, stream } => {
                format!("record {} on stream {stream}", Bytes(self.sizes.get(id).copied().unwrap_or(0)))
            }
            other => other.to_string(),
        };
        self.once(name)
    }

    fn once(&mut self, text: String) -> Arc<str> {
        self.texts.entry(text).or_insert_with_key(|text| text.as_str().into()).clone()
    }
}
