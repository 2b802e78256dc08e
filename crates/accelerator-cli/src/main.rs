//! temporary
use accelerator_cli::{replay::*, trace::*};
use accelerator_conformance::Sim;
use accelerator_core::Accelerator;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let place = args.iter().any(|a| a == "-p");
    let timed = args.iter().any(|a| a == "-t");
    let path = args.iter().find(|a| !a.starts_with("-")).unwrap();
    let mut setup = Setup::default();
    let mut lines = Source::open(path.as_ref()).unwrap().peekable();
    while let Some(Ok(line)) = lines.peek() {
        if !setup.take(&line.op).unwrap() {
            break;
        }
        lines.next();
    }
    let sim = setup.capacity.map_or_else(Sim::default, Sim::new);
    let acc = Accelerator::new(sim, 0, setup.config).unwrap();
    let mut r = Replayer::new(acc, timed);
    let mut out = PlainOutput::new(std::io::BufWriter::new(std::io::stdout().lock()), place);
    for line in lines {
        let line = line.unwrap();
        let o = r.step(&line).unwrap();
        out.write(line.number, &o).unwrap();
    }
    out.finish().unwrap();
    if let (n, Some(t)) = r.operations() {
        eprintln!("time_ns {} ops {n}", t.as_nanos());
    }
}
