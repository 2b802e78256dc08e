//! Paused memory in pictures of segments.

use super::*;

/// Paused memory has a colour of its own, whatever its blocks are, and does not count as free or allocated.
#[test]
fn paused_memory_is_shown_apart() {
    const MIB: u64 = 1 << 20;
    let (pool, other) = (MemPoolId::new(0, 7), MemPoolId::new(0, 8));
    let block = |state| MapBlock { size: 3 * MIB, state, scope: "op".into() };
    let segment = |mem_pool, is_paused| MapSegment {
        pool: PoolKind::Large,
        mem_pool,
        stream: 0,
        address: 512,
        is_alias: false,
        is_paused,
        blocks: [BlockState::Allocated, BlockState::Inactive].map(block).into(),
    };
    let segments = vec![segment(pool, true), segment(other, false)];
    let moment = Moment { name: "the end".to_owned(), call: 0, segments };
    let pool_names = [(pool, "weights".into())].into();
    let profile = Profile { moments: vec![moment], pool_names, ..Profile::default() };
    register().unwrap();
    for (by, entry) in [(ColorBy::State, "|allocated, 3.00 MiB|"), (ColorBy::Scope, "|op, 3.00 MiB|")] {
        let svg = Picture::Segments(0, by).to_svg(&profile).unwrap();
        let texts: Vec<_> = texts(&svg).iter().map(|text| text.text.trim().to_owned()).collect();
        let texts = texts.join("|");
        assert!(texts.contains(entry) && texts.contains("|free, 3.00 MiB|"), "{texts}");
        assert!(texts.contains("|paused, 6.00 MiB|"), "{texts}");
        let apart = "Large pool of private pool weights (0_7), stream 0: 6.00 MiB in 1 segment, 0 bytes allocated, \
                     6.00 MiB paused; a row";
        assert!(texts.contains(apart), "{texts}");
        assert!(texts.contains("private pool 0_8, stream 0: 6.00 MiB in 1 segment, 3.00 MiB allocated; a"), "{texts}");
        let RGBColor(red, green, blue) = Palette::of(Theme::Light).paused;
        let marked = svg.matches(&format!("fill=\"#{red:02X}{green:02X}{blue:02X}\"")).count();
        assert_eq!(marked, 4, "both blocks, the entry in the legend, the rule for dark systems");
    }
}
