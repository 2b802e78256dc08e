/// Returns the indices of the values that a picture shows: the first, the last, and a minimum and a maximum of each
/// column. `column` must not decrease.
pub(crate) fn outline(count: usize, column: impl Fn(usize) -> usize, value: impl Fn(usize) -> u64) -> Vec<usize> {
    let mut chosen = Vec::new();
    let mut start = 0;
    while start < count {
        let end = (start + 1..count).find(|next| column(*next) != column(start)).unwrap_or(count);
        let (mut least, mut greatest) = (start, start);
        for next in start..end {
            if value(next) < value(least) {
                least = next;
            }
            if value(next) > value(greatest) {
                greatest = next;
            }
        }
        let mut column = [start, least.min(greatest), least.max(greatest), end - 1].to_vec();
        column.dedup();
        chosen.append(&mut column);
        start = end;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_all_shown() {
        assert_eq!(outline(4, |value| value, |value| [3, 1, 4, 1][value]), [0, 1, 2, 3]);
        assert_eq!(outline(0, |value| value, |_| 0), [0; 0]);
    }

    #[test]
    fn extremes_of_many_values_stay() {
        let values: Vec<u64> = (0..100_000).map(|at| at * 7_919 % 100_003).collect();
        let chosen = outline(values.len(), |at| at / 1_000, |at| values[at]);
        assert!(chosen.len() <= 400 && chosen.is_sorted_by(|a, b| a < b));
        for (number, column) in values.chunks(1_000).enumerate() {
            let shown = chosen.iter().filter(|at| **at / 1_000 == number).map(|at| values[*at]);
            assert_eq!(shown.clone().max(), column.iter().copied().max());
            assert_eq!(shown.min(), column.iter().copied().min());
        }
    }
}
