use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;

use super::html::shortened;
use crate::picture::{Largest, MapBlock, MapSegment, Marker, Moment, Profile, Series, outline};
use crate::snapshot::{BlockState, PoolKind};
use crate::tracker::FORWARD_BACKWARD_BOUNDARY;

/// The number of columns that keep their extremes. More columns than a screen has would be useless.
const COLUMNS: u64 = 600;
/// The maximum number of segments and blocks at a moment, so that the page opens quickly.
const MOST_SEGMENTS: usize = 2_000;
const MOST_BLOCKS: usize = 6_000;

/// The data that the scripts of the page draw. Names are indices into `names`.
#[derive(Serialize)]
struct Data {
    names: Vec<String>,
    calls: usize,
    capacity: Option<u64>,
    timed: bool,
    sample: Samples,
    markers: Vec<(usize, u64, usize)>,
    marker_count: usize,
    moments: Vec<MomentData>,
}

/// The samples that are shown, column by column.
#[derive(Default, Serialize)]
struct Samples {
    call: Vec<usize>,
    time: Vec<u64>,
    name: Vec<usize>,
    added: Vec<i128>,
    allocated: Vec<u64>,
    active: Vec<u64>,
    reserved: Vec<u64>,
}

#[derive(Serialize)]
struct MomentData {
    name: usize,
    call: usize,
    /// The number of segments that are omitted.
    more: usize,
    segments: Vec<SegmentData>,
}

/// The kind (0 for the large pool, 1 for the small one, 2 for aliases), the stream, the address, the blocks, the
/// private pool with its name or nothing.
type SegmentData = (u8, u64, String, Vec<BlockData>, String);

/// Size, state, scope.
type BlockData = (u64, u8, usize);

/// Returns the data as JSON that is safe in a script element.
pub(super) fn json(profile: &Profile) -> String {
    let mut names = Names::default();
    let times = profile.times();
    let data = Data {
        calls: profile.samples.len(),
        capacity: profile.capacity,
        timed: profile.has_times(),
        sample: samples(profile, &times, &mut names),
        markers: markers(profile, &times, &mut names),
        marker_count: profile.markers.len(),
        moments: profile.moments.iter().map(|moment| moment_data(profile, moment, &mut names)).collect(),
        names: names.texts,
    };
    // `</script>` and `<!--` would end the element, or change how it is parsed.
    serde_json::to_string(&data).unwrap_or_default().replace('<', "\\u003c")
}

/// Names, each stored once.
#[derive(Default)]
struct Names {
    numbers: HashMap<Arc<str>, usize>,
    texts: Vec<String>,
}

impl Names {
    fn number(&mut self, name: &Arc<str>) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.texts.push(shortened(name));
        self.numbers.insert(name.clone(), self.texts.len() - 1);
        self.texts.len() - 1
    }
}

fn samples(profile: &Profile, times: &[u64], names: &mut Names) -> Samples {
    let mut shown = Samples::default();
    for call in chosen(profile, times) {
        let sample = &profile.samples[call];
        let before =
            call.checked_sub(1).map_or(profile.allocated_before(), |call| profile.samples[call].memory.allocated);
        shown.call.push(call);
        shown.time.push(times[call]);
        shown.name.push(names.number(&sample.name));
        shown.added.push(i128::from(sample.memory.allocated) - i128::from(before));
        shown.allocated.push(sample.memory.allocated);
        shown.active.push(sample.memory.active);
        shown.reserved.push(sample.memory.reserved);
    }
    shown
}

/// Returns the column of a position. `last` is the last position.
fn column(at: u64, last: u64) -> usize {
    (u128::from(at) * u128::from(COLUMNS) / u128::from(last.max(1))) as usize
}

/// Returns the samples that any of the curves needs, and the largest steps.
fn chosen(profile: &Profile, times: &[u64]) -> BTreeSet<usize> {
    let count = profile.samples.len();
    let last_time = times.last().copied().unwrap_or(0);
    let by_call = |call: usize| column(call as u64, count as u64);
    let by_time = |call: usize| column(times[call], last_time);
    let mut chosen: BTreeSet<usize> = profile.largest(30).into_iter().map(|Largest { call, .. }| call).collect();
    for series in Series::ALL {
        let value = |call: usize| series.of(&profile.samples[call]);
        chosen.extend(outline(count, by_call, value));
        if profile.has_times() {
            chosen.extend(outline(count, by_time, value));
        }
    }
    chosen
}

/// Returns the first marker and the first boundary of forward and backward pass in each column, along calls and along
/// time. These are all lines that can be distinguished.
fn markers(profile: &Profile, times: &[u64], names: &mut Names) -> Vec<(usize, u64, usize)> {
    let last_time = times.last().copied().unwrap_or(0);
    let mut taken = HashSet::new();
    let mut shown = Vec::new();
    for Marker { name, call } in &profile.markers {
        let time = times.get(*call).copied().unwrap_or(last_time);
        let is_boundary = &**name == FORWARD_BACKWARD_BOUNDARY;
        let by_call = ("call", column(*call as u64, profile.samples.len() as u64), is_boundary);
        let by_time = ("time", column(time, last_time), is_boundary);
        if taken.insert(by_call) | taken.insert(by_time) {
            shown.push((*call, time, names.number(name)));
        }
    }
    shown
}

fn moment_data(profile: &Profile, moment: &Moment, names: &mut Names) -> MomentData {
    let mut segments: Vec<&MapSegment> = moment.segments.iter().collect();
    segments.sort_by_cached_key(|segment| std::cmp::Reverse(segment.size()));
    let more = segments.len().saturating_sub(MOST_SEGMENTS);
    segments.truncate(MOST_SEGMENTS);
    let mut least = 0;
    let mut blocks: Vec<Vec<MapBlock>>;
    loop {
        blocks = segments.iter().map(|segment| coarse(&segment.blocks, least)).collect();
        if blocks.iter().map(Vec::len).sum::<usize>() <= MOST_BLOCKS || least > 1 << 62 {
            break;
        }
        least = (2 * least).max(512);
    }
    let block = |is_paused, block: &MapBlock, names: &mut Names| {
        let state = match block.state {
            _ if is_paused => 4,
            BlockState::Allocated => 0,
            BlockState::PendingFree => 1,
            BlockState::Inactive => 2,
            BlockState::Aliased => 3,
        };
        (block.size, state, names.number(&block.scope))
    };
    let mut segment = |(segment, blocks): (&&MapSegment, &Vec<MapBlock>)| {
        let blocks = blocks.iter().map(|one| block(segment.is_paused, one, names)).collect();
        let kind = if segment.is_alias { 2 } else { u8::from(segment.pool == PoolKind::Small) };
        let own = Some(segment.mem_pool).filter(|pool| !pool.is_default());
        let own = own.map(|pool| shortened(&profile.pool(pool)));
        (kind, segment.stream, format!("{:#x}", segment.address), blocks, own.unwrap_or_default())
    };
    let segments = segments.iter().zip(&blocks).map(&mut segment).collect();
    MomentData { name: names.number(&moment.name.as_str().into()), call: moment.call, more, segments }
}

/// Merges adjacent blocks smaller than `least` into one block, with the properties of the largest.
fn coarse(blocks: &[MapBlock], least: u64) -> Vec<MapBlock> {
    let mut coarse: Vec<MapBlock> = Vec::new();
    let mut largest = u64::MAX; // the largest of the blocks that were merged into the last one
    for block in blocks {
        match coarse.last_mut().filter(|last| last.size < least && block.size < least) {
            Some(last) => {
                if block.size > largest {
                    (last.state, last.scope, largest) = (block.state, block.scope.clone(), block.size);
                }
                last.size = last.size.saturating_add(block.size);
            }
            None => {
                coarse.push(block.clone());
                largest = block.size;
            }
        }
    }
    coarse
}
