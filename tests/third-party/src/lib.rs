//! A backend outside the workspace: a device whose memory is buffers, and whose streams are threads.
//!
//! From the bottom: `event` has points that streams reach, `memory` buffers and pointers into them, `stream` threads
//! that work in order, `sample` the backend over all three, and `kernel` a kernel for it.

mod event;
mod kernel;
mod memory;
mod sample;
mod stream;

pub use event::SampleEvent;
pub use kernel::saxpy;
pub use memory::SamplePtr;
pub use sample::Sample;
pub use stream::SampleStream;
