//! How the host waits.

use std::time::{Duration, Instant};

use sim_engine::{Condition, Waited};

use crate::result::{Outcome, Refusal};
use crate::state::Session;

/// After so many looks in a row at which nothing happened, nothing will in the time that is left.
const IDLE_LOOKS: u32 = 64;

/// Waits for at most so many virtual nanoseconds until all of these hold: none for 0, for ever for the
/// largest number. The work that is waited for belongs to these devices.
pub(crate) fn wait(
    session: &mut Session,
    conditions: &[Condition],
    timeout: u64,
    devices: &[usize],
) -> Outcome {
    let outcome = match timeout {
        0 => {
            session.advance();
            look(session, conditions)
        }
        u64::MAX => wait_for_ever(session, conditions, devices),
        _ => wait_a_while(session, conditions, timeout),
    };
    match is_lost(session, conditions, devices) {
        true => Err(Refusal::DEVICE_LOST),
        false => outcome,
    }
}

/// A device may have been lost meanwhile, and its work with it. Where there are others, some of them may yet do theirs.
fn is_lost(session: &Session, conditions: &[Condition], devices: &[usize]) -> bool {
    let is_vain = |condition: &Condition| match condition {
        Condition::Set(signal) => {
            !session.engine.holds(*condition) && session.engine.setting(*signal).is_empty()
        }
        Condition::Over(_) => false,
    };
    let some = devices.iter().any(|device| session.is_lost(*device));
    session.are_all_lost(devices) || (some && conditions.iter().any(is_vain))
}

fn look(session: &Session, conditions: &[Condition]) -> Outcome {
    let holds = |condition: &Condition| session.engine.holds(*condition);
    if conditions.iter().all(holds) { Ok(()) } else { Err(Refusal::NOT_READY) }
}

/// Work happens as it does for who asks again and again; held work does not.
fn wait_a_while(session: &mut Session, conditions: &[Condition], timeout: u64) -> Outcome {
    let deadline = session.engine.clock.saturating_add(timeout);
    let mut idle = 0;
    while look(session, conditions).is_err() && session.engine.clock < deadline && idle < IDLE_LOOKS {
        let before = session.engine.clock;
        session.advance();
        idle = if session.engine.clock == before { idle + 1 } else { 0 };
    }
    look(session, conditions)
}

/// Another thread may yet submit what is waited for. Only if none does for long, nobody ever will.
fn wait_for_ever(session: &mut Session, conditions: &[Condition], devices: &[usize]) -> Outcome {
    let mut last_change = Instant::now();
    let mut submitted = session.submitted;
    loop {
        if session.wait(conditions) == Waited::Over || is_lost(session, conditions, devices) {
            return Ok(());
        }
        if session.submitted != submitted {
            (last_change, submitted) = (Instant::now(), session.submitted);
        }
        let left = session.settings.patience.saturating_sub(last_change.elapsed());
        if left == Duration::ZERO {
            break;
        }
        session.wait_for_others_at_most(left);
    }
    session.violation("somebody waits for what nothing submitted can bring about");
    devices.iter().for_each(|device| session.lose(*device));
    Err(Refusal::DEVICE_LOST)
}
