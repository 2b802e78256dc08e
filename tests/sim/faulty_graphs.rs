//! Graphs of the faulty driver: what held streams capture and launch, and injected failures.

use accelerator_conformance::{Call, Controls, Faulty, FaultyStream};
use accelerator_core::{Backend, CaptureMode, DriverErrorKind, DriverResult, EventFlags, ExecutableGraph, Graphs};
use accelerator_host::Host;
use libtest_mimic::{Failed, Trial};

use super::faulty::Rig;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("faulty::a_held_stream_captures_and_launches_late", held),
        Trial::test("faulty::held_streams_join_a_capture", joined),
        Trial::test("faulty::each_call_of_graphs_fails_on_demand", failures),
    ]
}

fn graphs(rig: &Rig) -> &dyn Graphs<Faulty<Host>> {
    rig.driver.graphs().unwrap()
}

fn launch(graph: &dyn ExecutableGraph<Faulty<Host>>, stream: &FaultyStream<Host>) -> DriverResult<()> {
    // SAFETY: The rig keeps its memory.
    unsafe { graph.launch(stream) }
}

fn held() -> Result<(), Failed> {
    let rig = Rig::new()?;
    rig.driver.hold(&rig.one);
    rig.fill(1, &rig.one)?;
    graphs(&rig).begin(&rig.one, CaptureMode::default())?;
    rig.fill(2, &rig.one)?;
    let graph = graphs(&rig).end(&rig.one)?;
    rig.driver.synchronize(&rig.one)?;
    assert_eq!(rig.now()?, 1, "work from before the capture has run, and none of the capture");

    launch(&*graph, &rig.one)?;
    rig.driver.settle();
    assert_eq!((rig.now()?, rig.driver.is_idle(&rig.one)?), (1, false), "the launch is late");
    rig.driver.release(&rig.one);
    rig.driver.synchronize(&rig.one)?;
    assert_eq!(rig.now()?, 2);
    Ok(())
}

fn joined() -> Result<(), Failed> {
    let rig = Rig::new()?;
    rig.driver.hold(&rig.two);
    rig.fill(1, &rig.two)?;
    let event = rig.driver.event(EventFlags::default())?;
    graphs(&rig).begin(&rig.one, CaptureMode::default())?;
    rig.driver.record(&event, &rig.one)?;
    rig.driver.wait(&rig.two, &event)?;
    assert_eq!(graphs(&rig).capture_of(&rig.two)?, graphs(&rig).capture_of(&rig.one)?);
    rig.fill(2, &rig.two)?;
    rig.driver.record(&event, &rig.two)?;
    rig.driver.wait(&rig.one, &event)?;
    let graph = graphs(&rig).end(&rig.one)?;
    rig.driver.synchronize(&rig.two)?;
    assert_eq!(rig.now()?, 1, "late work from before was not captured");
    launch(&*graph, &rig.one)?;
    rig.driver.synchronize(&rig.one)?;
    assert_eq!(rig.now()?, 2);
    Ok(())
}

fn failures() -> Result<(), Failed> {
    let (rig, kind) = (Rig::new()?, DriverErrorKind::Other);
    let stream = &rig.one;
    let fails = |call| rig.driver.fail_next(call, kind);
    fails(Call::Begin);
    assert_eq!(graphs(&rig).begin(stream, CaptureMode::default()).unwrap_err().kind, kind);
    assert!(!rig.driver.is_capturing(stream)?);

    graphs(&rig).begin(stream, CaptureMode::default())?;
    rig.fill(1, stream)?;
    for call in [Call::CaptureOf, Call::Mark, Call::Precede] {
        fails(call);
        let answer = match call {
            Call::CaptureOf => graphs(&rig).capture_of(stream).map(drop),
            Call::Mark => graphs(&rig).mark(stream).map(drop),
            _ => graphs(&rig).precede(&[], stream).map(drop),
        };
        assert_eq!(answer.unwrap_err().kind, kind, "{call:?}");
    }
    fails(Call::End);
    assert_eq!(graphs(&rig).end(stream).unwrap_err().kind, kind);
    assert!(!rig.driver.is_capturing(stream)?, "the capture is over all the same");

    graphs(&rig).begin(stream, CaptureMode::default())?;
    rig.fill(1, stream)?;
    let graph = graphs(&rig).end(stream)?;
    fails(Call::Upload);
    assert_eq!(graph.upload(stream).unwrap_err().kind, kind);
    fails(Call::Launch);
    assert_eq!(launch(&*graph, stream).unwrap_err().kind, kind);
    rig.driver.synchronize(stream)?;
    assert_eq!(rig.now()?, 0, "nothing of the graph runs after a failure");
    graph.upload(stream)?;
    launch(&*graph, stream)?;
    rig.driver.synchronize(stream)?;
    assert_eq!((rig.now()?, rig.driver.calls().of(Call::Launch)), (1, 2));
    Ok(())
}
