//! Finds the kernels in PTX source. PTX is never executed.

use sim_engine::Kernel;

/// Returns the entries of PTX source that the driver knows by name and with the same parameters.
pub(crate) fn kernels_in(text: &str) -> Vec<Kernel> {
    let entries = text.split(".entry").skip(1).filter_map(|entry| {
        let (name, rest) = entry.split_once('(')?;
        let parameters = rest.split_once(')')?.0;
        let kernel = Kernel::named(name.trim())?;
        let same = widths(parameters) == kernel.parameters();
        (same || kernel == Kernel::Spin).then_some(kernel)
    });
    entries.collect()
}

/// Returns the size of each parameter of a list such as `.param .u32 n, .param .u64 .ptr .global .align 4 x`, and 0 for
/// an unknown type.
fn widths(parameters: &str) -> Vec<usize> {
    let types = parameters.split(',').filter_map(|parameter| parameter.split_whitespace().nth(1));
    let width = |name: &str| match name.trim_start_matches(|c: char| !c.is_ascii_digit()) {
        "32" => 4,
        "64" => 8,
        _ => 0,
    };
    types.map(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_name_and_parameters() {
        let text = ".version 8.0
            .visible .entry saxpy(
                .param .u32 n,
                .param .f32 a, .param .u64 .ptr x, .param .u64 y
            ) {}
            .visible .entry scale(.param .u32 n, .param .u64 x) {}
            .entry spin() {}
            .entry other(.param .u32 n) {}";
        assert_eq!(kernels_in(text), [Kernel::Saxpy, Kernel::Spin]);
        assert_eq!(kernels_in("saxpy"), []);
    }
}
