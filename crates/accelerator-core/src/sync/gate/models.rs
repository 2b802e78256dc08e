use std::sync::Arc;

use super::*;
use crate::sync::primitives::{Exclusive, explore, thread};

/// Threads enter a gate, each with a cell of its own for what it does inside, while one closes it and opens it again.
fn enter_and_close(threads: usize, preemptions: usize) {
    explore(preemptions, move || {
        let shared = Arc::new((Gate::default(), <[Exclusive; 2]>::default()));
        let entering: Vec<_> = (0..threads)
            .map(|own| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (gate, work) = &*shared;
                    if let Some(_step) = gate.enter() {
                        work[own].access();
                    }
                })
            })
            .collect();
        let (gate, work) = &*shared;
        gate.close();
        work.iter().for_each(Exclusive::access);
        gate.open();
        entering.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(gate.enter().is_some());
    });
}

#[test]
fn nobody_is_inside_while_it_is_closed() {
    enter_and_close(1, 6);
    enter_and_close(2, 3);
}
