use super::profile::Span;

/// Allocations of at least `1 << power` bytes, but less than twice as many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SizeBin {
    pub(crate) power: u32,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

/// Groups allocations by size, from the smallest to the largest power of two that occurs.
pub(crate) fn size_bins(spans: &[Span]) -> Vec<SizeBin> {
    let powers = || spans.iter().map(|span| span.bytes.max(1).ilog2());
    let (Some(least), Some(greatest)) = (powers().min(), powers().max()) else { return Vec::new() };
    let mut bins: Vec<_> = (least..=greatest).map(|power| SizeBin { power, ..SizeBin::default() }).collect();
    for (power, span) in powers().zip(spans) {
        let bin = &mut bins[(power - least) as usize];
        bin.count += 1;
        bin.bytes = bin.bytes.saturating_add(span.bytes);
    }
    bins
}

/// The number of allocations of each size and lifetime: `cells[lifetime][size]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grid {
    /// The power of two of the first column, in bytes.
    pub(crate) least_size: u32,
    /// The rows: lifetimes below 2, 4, 8 … operators, and in the last row the allocations that are alive at the end.
    pub(crate) cells: Vec<Vec<u64>>,
}

/// Groups allocations by size and lifetime. Allocations older than the profile are excluded, since their lifetime is
/// unknown.
pub(crate) fn grid(spans: &[Span]) -> Grid {
    let known: Vec<_> = spans.iter().filter(|span| span.start.is_some()).copied().collect();
    let bins = size_bins(&known);
    let Some(first) = bins.first() else { return Grid::default() };
    let lifetime = |span: &Span| match (span.start, span.end) {
        (Some(start), Some(end)) => Some((end.saturating_sub(start) as u64).max(1).ilog2() as usize),
        _ => None,
    };
    let longest = known.iter().filter_map(lifetime).max().map_or(0, |power| power + 1);
    let mut cells = vec![vec![0; bins.len()]; longest + 1];
    for span in &known {
        let column = span.bytes.max(1).ilog2() - first.power;
        cells[lifetime(span).unwrap_or(longest)][column as usize] += 1;
    }
    Grid { least_size: first.power, cells }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_counted_by_size_and_lifetime() {
        let span = |bytes, end| Span { bytes, start: Some(10), end };
        let older = Span { bytes: 1 << 30, start: None, end: Some(11) };
        let spans = [span(512, Some(11)), span(1023, None), span(2048, Some(17)), span(0, Some(11)), older];
        let grid = grid(&spans);
        assert_eq!(grid.least_size, 0);
        // Rows: lifetimes below 2, 4 and 8 operators, and until the end. Columns: powers of two, from 1 byte to 2 KiB.
        let at = |row: usize, power: usize| grid.cells[row][power];
        assert_eq!((at(0, 9), at(3, 9), at(2, 11), at(0, 0)), (1, 1, 1, 1));
        assert_eq!(grid.cells.iter().flatten().sum::<u64>(), 4);

        let bins = size_bins(&spans[..3]);
        let counts: Vec<_> = bins.iter().map(|bin| (bin.power, bin.count, bin.bytes)).collect();
        assert_eq!(counts, [(9, 2, 1535), (10, 0, 0), (11, 1, 2048)]);
        assert!(size_bins(&[]).is_empty());
    }
}
