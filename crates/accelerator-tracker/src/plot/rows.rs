use accelerator_core::MemPoolId;

use crate::picture::{MapBlock, MapSegment};
use crate::snapshot::PoolKind;

/// The segments of one pool and stream, or of one kind of pool, or all aliases, laid out in rows at one scale.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// Whether these are aliases, whose memory is in other groups.
    pub(super) is_alias: bool,
    pub(super) pool: PoolKind,
    /// The private pool or the default pool, or `None` if there are several.
    pub(super) mem_pool: Option<MemPoolId>,
    /// The stream, or `None` if there are several.
    pub(super) stream: Option<u64>,
    pub(super) segments: Vec<&'a MapSegment>,
    /// The bytes of a full row.
    pub(super) row_bytes: u64,
    pub(super) rows: Vec<Vec<Piece<'a>>>,
}

/// A segment in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    /// The offset from the left end of the row, in bytes.
    pub(super) start: u64,
    pub(super) blocks: &'a [MapBlock],
    pub(super) is_paused: bool,
}

/// The maximum number of groups that each have one pool and stream. If there would be more, all large pools form one
/// group, and all small ones.
const MOST_GROUPS: usize = 6;

/// Lays out segments in about `rows` rows: large pools first, and the largest segments first.
pub(super) fn groups(segments: &[MapSegment], rows: u64) -> Vec<Group<'_>> {
    let mut all = by_pool(segments, |segment| Some((segment.mem_pool, segment.stream)).filter(|_| !segment.is_alias));
    if all.len() > MOST_GROUPS {
        all = by_pool(segments, |_| None);
    }
    let rows = (rows / all.len().max(1) as u64).max(3);
    for group in &mut all {
        group.lay_out(rows);
    }
    all
}

fn by_pool(segments: &[MapSegment], apart: impl Fn(&MapSegment) -> Option<(MemPoolId, u64)>) -> Vec<Group<'_>> {
    let mut sorted: Vec<_> = segments.iter().collect();
    let order = |segment: &&MapSegment| {
        (
            segment.is_alias,
            segment.pool == PoolKind::Small,
            apart(segment),
            std::cmp::Reverse(segment.size()),
            segment.address,
        )
    };
    sorted.sort_by_cached_key(order);
    let kind = |segment: &MapSegment| (segment.is_alias, segment.pool, apart(segment));
    let same = |a: &&MapSegment, b: &&MapSegment| kind(a) == kind(b);
    let mut groups = Vec::new();
    for chunk in sorted.chunk_by(same) {
        let Some((is_alias, pool, apart)) = chunk.first().map(|first| kind(first)) else { continue };
        let (mem_pool, stream) = apart.unzip();
        let (segments, rows) = (chunk.to_vec(), Vec::new());
        groups.push(Group { is_alias, pool, mem_pool, stream, segments, row_bytes: 0, rows });
    }
    groups
}

impl Group<'_> {
    /// Returns the bytes reserved from the driver, or paused.
    pub(super) fn reserved(&self) -> u64 {
        self.segments.iter().fold(0, |sum: u64, segment| sum.saturating_add(segment.size()))
    }

    fn lay_out(&mut self, rows: u64) {
        let largest = self.segments.iter().map(|segment| segment.size()).max().unwrap_or(0);
        self.row_bytes = largest.max(self.reserved().div_ceil(rows)).max(1);
        let mut filled: Vec<u64> = Vec::new();
        let mut open = 0; // rows before this one are closed
        for segment in &self.segments {
            let size = segment.size();
            let fits = |row: &usize| self.row_bytes - filled[*row] >= size;
            let row = (open..filled.len()).find(fits).unwrap_or(filled.len());
            if row == filled.len() {
                filled.push(0);
                self.rows.push(Vec::new());
                open = filled.len().saturating_sub(SEARCHED);
            }
            self.rows[row].push(Piece { start: filled[row], blocks: &segment.blocks, is_paused: segment.is_paused });
            filled[row] += size;
        }
    }
}

/// The number of rows that are searched for room, so that many segments do not take quadratic time.
const SEARCHED: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::snapshot::BlockState;

    fn segment(pool: PoolKind, stream: u64, size: u64) -> MapSegment {
        let block = MapBlock { size, state: BlockState::Allocated, scope: Arc::default() };
        let mem_pool = MemPoolId::DEFAULT;
        MapSegment { pool, mem_pool, stream, address: size, is_alias: false, is_paused: false, blocks: vec![block] }
    }

    #[test]
    fn every_segment_has_its_place() {
        let sizes = [5, 1, 9, 3, 3, 7, 2];
        let segments: Vec<_> = sizes.iter().map(|size| segment(PoolKind::Large, 0, *size)).collect();
        let groups = groups(&segments, 3);
        assert_eq!(groups.len(), 1);
        assert_eq!((groups[0].row_bytes, groups[0].reserved()), (10, 30));
        let rows = groups[0].rows.iter().map(|row| row.iter().map(|piece| piece.blocks[0].size).collect::<Vec<_>>());
        assert_eq!(rows.collect::<Vec<_>>(), [vec![9, 1], vec![7, 3], vec![5, 3, 2]]);
        assert_eq!(groups[0].rows[2][2].start, 8);
    }

    #[test]
    fn pools_and_streams_are_apart_unless_they_are_many() {
        let some = [(PoolKind::Small, 0), (PoolKind::Large, 1), (PoolKind::Large, 0)];
        let some: Vec<_> = some.iter().map(|(pool, stream)| segment(*pool, *stream, 4)).collect();
        let order = groups(&some, 4).iter().map(|group| (group.pool, group.stream)).collect::<Vec<_>>();
        assert_eq!(order, [(PoolKind::Large, Some(0)), (PoolKind::Large, Some(1)), (PoolKind::Small, Some(0))]);
        let private = MapSegment { mem_pool: MemPoolId::new(0, 1), ..segment(PoolKind::Large, 0, 4) };
        let segments = [segment(PoolKind::Large, 0, 4), private];
        let order: Vec<_> = groups(&segments, 4).iter().map(|group| group.mem_pool).collect();
        assert_eq!(order, [Some(MemPoolId::DEFAULT), Some(MemPoolId::new(0, 1))]);
        let many: Vec<_> = (0..50).map(|stream| segment(PoolKind::Large, stream, 4)).collect();
        assert_eq!(groups(&many, 4).len(), 1);
        assert!(groups(&[], 4).is_empty());
    }
}
