//! The faults: what the driver does wrong, the case that catches it, and what that case says.

use crate::drivers::Driver::{Cuda, Host, Xpu};
use crate::fault::faults;

faults! {
    // Whether work is done.
    IsCompleteAlwaysTrue: "`is_complete` is always true.", 115, "`is_complete`";
    IsCompleteNeverTrue: "`is_complete` is never true once an event is recorded.", 115, "`is_complete`";
    IsCompleteOnTheSecondQuery: "`is_complete` is true when it is asked again.", 115, "`is_complete`";
    IsCompleteRefusesToAnswer: "`is_complete` fails with \"not ready\" instead of returning false.", 115, "`is_complete`";
    IsCompleteWaits: "`is_complete` waits for the event.", 115, "`is_complete`";
    IsCompleteOnlyAfterSynchronize: "An event is complete only once its stream is synchronized.", 115, "`is_complete`";
    EventNeverReached: "An event is never reached, and `wait_host` waits for ever.", 115, "`is_complete` still said no";
    WaitHostHangs: "`wait_host` never returns.", 118, "`wait_host` has not returned";
    IsIdleAlwaysTrue: "`is_idle` is always true.", 116, "`is_idle`";
    IsIdleNeverTrue: "`is_idle` is never true.", 116, "`is_idle`";
    IsIdleRefusesToAnswer: "`is_idle` fails with \"not ready\" instead of returning false.", 116, "`is_idle`";
    IsIdleWaits: "`is_idle` waits for the stream.", 116, "`is_idle`";
    IsIdleForgetsAWait: "`is_idle` is true while the stream has only a wait left.", 120, "`is_idle`";
    SynchronizeDoesNothing: "`synchronize` returns at once.", 117, "`synchronize`";
    SynchronizeGivesUp: "`synchronize` returns after a millisecond, done or not.", 117, "`synchronize`";
    SynchronizeWaitsForTheFirst: "`synchronize` waits for the first piece of work only.", 117, "`synchronize`";
    SynchronizeOfTheDefaultStream: "`synchronize` waits for the default stream, whatever the stream.", 117, "`synchronize`";
    WaitHostDoesNothing: "`wait_host` returns at once.", 118, "`wait_host`";
    WaitHostGivesUp: "`wait_host` returns after a millisecond, done or not.", 118, "`wait_host`";

    // Streams that wait for events.
    WaitDoesNothing: "`wait` does nothing.", 119, "`wait`";
    WaitForSideStreamsDoesNothing: "`wait` ignores events of side streams.", 119, "`wait`";
    WaitDeferred: "`wait` takes effect at the next copy or fill of the stream.", 120, "`wait`";
    OnlyTheLastWaitCounts: "Of several waits in a row, only the last takes effect.", 119, "`wait`";
    WaitBlocksTheHost: "`wait` blocks the host until the event is reached.", 121, "`wait`";
    WaitFollowsTheEvent: "A wait is for the record that the event has when the next work is submitted.", 123, "`record`";
    WaitForAnUnrecordedEventHangs: "A wait for an event that was never recorded stops the stream.", 124, "`wait`";
    DroppedEventFreesItsWaiters: "A wait is forgotten when its event is dropped.", 125, "event";
    DroppedEventStopsItsStream: "Dropping a pending event stops the stream that recorded it.", 125, "event";

    // Events.
    SecondRecordIgnored: "Only the first record of an event counts.", 122, "`record`";
    RecordOneSubmissionEarly: "`record` places the event before the last copy or fill.", 115, "`is_complete`";
    RecordWhilePendingRefused: "`record` refuses an event that is still pending.", 123, "`record`";
    RecordsAtOnceLost: "When two threads record at the same time, one of the records is lost.", 142, "`record`";
    UnrecordedIsIncomplete: "An event that was never recorded is not complete.", 124, "`is_complete`";
    UnrecordedHangsTheHost: "`wait_host` for an event that was never recorded waits for ever.", 124, "`wait_host`";
    EventsRunOut: "`event` fails once 100 events were made, dropped or not.", 142, "`event`";
    InterprocessRefusedAsOther: "`event` refuses interprocess events as `Other`.", 145, "`event` did not answer `Unsupported`";
    EventIdsAllEqual: "`event_id` is 1 for every event.", 147, "`event_id`";

    // Elapsed time.
    ElapsedBackwards: "`elapsed_ns` has the wrong sign.", 133, "`elapsed_ns`";
    ElapsedSignLost: "`elapsed_ns` is never negative.", 133, "`elapsed_ns`";
    ElapsedZero: "`elapsed_ns` is always 0.", 132, "`elapsed_ns`";
    ElapsedInMicroseconds: "`elapsed_ns` returns microseconds.", 132, "`elapsed_ns`";
    ElapsedInTicks: "`elapsed_ns` returns ticks of 52 nanoseconds.", 132, "`elapsed_ns`";
    ElapsedTooLarge: "`elapsed_ns` is 1,000 times too large.", 132, "`elapsed_ns`";
    ElapsedWraps: "`elapsed_ns` wraps after 20 bits.", 132, "`elapsed_ns`";
    ElapsedOfTheSubmission: "`elapsed_ns` is the host's time between the two calls of `record`.", 132, "`elapsed_ns`";
    TimingRefused: "`event` leaves timing out, and `elapsed_ns` fails.", 132, "`elapsed_ns`";

    // Fills.
    FillDoesNothing: "`fill` does nothing.", 126, "`fill`";
    FillValueLost: "`fill` writes zeros.", 126, "`fill`";
    FillRoundedDown: "`fill` rounds its length down to 4 bytes.", 126, "`fill`";
    FillRoundedUp: "`fill` rounds its length up to 4 bytes.", 126, "`fill`";
    FillAligned: "`fill` starts at a multiple of 4 bytes.", 126, "`fill`";
    FillOffsetIgnored: "`fill` starts at the beginning of the allocation.", 126, "`fill`";
    FillOfTheFirstPart: "`fill` writes the first 16 MiB only.", 128, "`fill`";
    ShortFillOvertakes: "`fill` of up to 1 MiB does not wait for earlier work of its stream.", 129, "`fill`";
    FillWaits: "`fill` waits until the stream is idle.", 131, "`fill`";

    // Copies.
    CopyDoesNothing: "`copy` does nothing.", 127, "`copy`";
    CopyOneByteShort: "`copy` leaves out the last byte.", 127, "`copy`";
    CopyRoundedDown: "`copy` rounds its length down to 4 bytes.", 127, "`copy`";
    CopySourceOffsetIgnored: "`copy` reads from the beginning of the allocation.", 127, "`copy`";
    CopyDestinationOffsetIgnored: "`copy` writes to the beginning of the allocation.", 127, "`copy`";
    CopyReversed: "`copy` between two places on the device swaps them.", 127, "`copy`";
    CopyOnTheDeviceLost: "`copy` between two places on the device does nothing.", 127, "`copy`";
    CopyOfTheFirstPart: "`copy` copies the first 16 MiB only.", 128, "`copy`";
    CopyOvertakes: "`copy` does not wait for earlier work of its stream.", 129, "`copy`";
    PinnedStagedAtSubmission: "`copy` reads pinned memory when it is submitted.", 129, "`copy`";
    PageableStagedAtSubmission: "`copy` reads pageable memory when it is submitted.", 130,
        "`copy` read pageable memory before", on [Host, Xpu];
    CopyToTheHostIsLate: "A copy to the host arrives when the stream is synchronized.", 118, "`wait_host`";
    CopyWaits: "`copy` waits until the stream is idle.", 131, "`copy`";

    // Device memory.
    AllocMisaligned: "`alloc` returns memory at half the stated alignment.", 134, "`alloc`";
    AllocOverlaps: "Every second allocation begins inside the one before.", 134, "`alloc`";
    OutOfMemoryAsOther: "`alloc` reports lack of memory as `Other`.", 135, "`alloc`";
    OutOfMemoryAsTooLarge: "`alloc` reports lack of memory as `AllocationTooLarge`.", 135, "`alloc`";
    OutOfMemoryPanics: "`alloc` panics when the memory is full.", 135, "`alloc`";
    OutOfMemoryForEver: "After `alloc` failed once, it always fails.", 135, "`alloc`";
    TooLargeAsOutOfMemory: "`alloc` reports a request over the driver's limit as `OutOfMemory`.", 136, "`alloc`";
    LargestAllocationNotKept: "`alloc` refuses requests below the stated limit.", 136, "`largest_allocation`";
    DeallocLeaks: "`dealloc` does nothing.", 138, "`dealloc`";
    DeallocDoesNotWait: "`dealloc` frees memory that earlier work still uses: its bytes change at once.", 139, "`dealloc`";
    DeallocReusesAtOnce: "`alloc` returns memory that earlier work still uses.", 139, "`dealloc`";
    DeallocFreesAnother: "`dealloc` frees another allocation of the same length.", 138, "`dealloc`";
    MemoryInfoSwapped: "`memory_info` swaps free and total memory.", 137, "`memory_info`";
    MemoryInfoNeverChanges: "`memory_info` always returns its first answer.", 137, "`memory_info`";
    MemoryInfoInKib: "`memory_info` counts in KiB.", 137, "`memory_info`";
    MemoryInfoBackwards: "`memory_info` adds allocations to the free memory.", 137, "`memory_info`";
    MemoryInfoForgetsDealloc: "`memory_info` never returns more free memory than before.", 137, "`memory_info`";
    MemoryInfoTotalIsFree: "`memory_info` returns the free memory as the total, too.", 137, "`memory_info`";

    // Host memory.
    AllocHostMisaligned: "`alloc_host` returns memory aligned to 8 bytes.", 140, "`alloc_host`";
    AllocHostOverlaps: "Every second allocation of host memory begins inside the one before.", 140, "`alloc_host`";
    AllocHostPanics: "`alloc_host` panics when it gets too large a request.", 140, "`alloc_host`";
    AllocHostRefusesAsOther: "`alloc_host` reports lack of memory as `Other`.", 140, "`alloc_host`";
    DeallocHostFreesAnother: "`dealloc_host` overwrites another allocation.", 140, "`dealloc_host`";

    // Threads and streams.
    OtherThreadsRefused: "Calls from threads other than the first fail.", 142, "thread";
    SubmissionsAtOnceLost: "When two threads submit work to a stream at the same time, one piece is lost.", 142, "thread";
    StreamsRunOut: "`stream` fails once there are 16 streams.", 141, "`stream`";

    // Devices and properties.
    ProbeOneTooMany: "`probe` counts one device too many.", 144, "`probe`";
    ProbeChanges: "`probe` counts one more device at each call.", 144, "`probe`";
    OpenFails: "`open` fails for every device.", 144, "cannot be opened";
    OpenAcceptsAnyNumber: "`open` opens the first device for any number.", 144, "`open(1)` opened a device";
    OpenRefusesAsOther: "`open` refuses an unknown number as `Other`.", 144, "did not answer `InvalidArgument`";
    PropertiesChange: "`properties` returns another amount of memory at each second call.", 145, "`properties`";
    AlignmentTooLarge: "The stated alignment is 1 GiB.", 134, "`alloc`";
    AlignmentOdd: "The stated alignment is 384, which is not a power of two.", 145, "`alignment`";
    PrioritiesReversed: "The stated stream priorities are (least, greatest) swapped.", 145, "`stream_priorities`";
    TotalMemoryZero: "The stated total memory is 0.", 145, "`total_memory`";
    NamelessDevice: "The device's name is empty.", 145, "`name`";

    // Virtual memory.
    GranularityTooSmall: "`granularity` is 512, which the driver does not support.", 146, "`granularity`";
    MapIgnoresTheOffset: "`map` maps memory at the beginning of the reservation.", 146, "`map`";
    UnmapDoesNothing: "`unmap` leaves the memory mapped, and `map` fails there.", 146, "`unmap`", on [Cuda, Xpu];
    UnmapIgnoresTheOffset: "`unmap` removes the mapping at the beginning of the reservation.", 146, "`unmap`";
    DestroyLeaks: "`destroy` does nothing.", 146, "`destroy` gives nothing back";
    MapsTwiceLies: "`maps_twice` is true, but the second address has other memory.", 146, "`maps_twice` says yes, but";
    CopyInParts: "`serializes_conflicts` is true, but other work may run in the middle of a copy.", 114,
        "`serializes_conflicts` is true, but", on [Host];
}
