//! The faults: what the driver does wrong, the case that catches it, and what that case says.

use crate::drivers::Driver::{Cuda, Host, Xpu};
use crate::fault::faults;

faults! {
    // Whether work is done.
    IsCompleteAlwaysTrue: "`is_complete` is always true.", 115, "`is_complete` said yes, and";
    IsCompleteNeverTrue: "`is_complete` is never true once an event is recorded.", 115, "`is_complete` still said no";
    IsCompleteOnTheSecondQuery: "`is_complete` is true when it is asked again.", 115, "`is_complete` said yes, and";
    IsCompleteRefusesToAnswer: "`is_complete` fails with \"not ready\" instead of returning false.", 115,
        "`is_complete` failed";
    IsCompleteWaits: "`is_complete` waits for the event.", 115, "`is_complete` took";
    IsCompleteOnlyAfterSynchronize: "An event is complete only once its stream is synchronized.", 115,
        "`is_complete` still said no";
    EventNeverReached: "An event is never reached, and `wait_host` waits for ever.", 115,
        "`is_complete` still said no";
    WaitHostHangs: "`wait_host` never returns.", 118, "`wait_host` has not returned";
    IsIdleAlwaysTrue: "`is_idle` is always true.", 116, "`is_idle` said yes, and";
    IsIdleNeverTrue: "`is_idle` is never true.", 116, "`is_idle` still said no";
    IsIdleRefusesToAnswer: "`is_idle` fails with \"not ready\" instead of returning false.", 116, "`is_idle` failed";
    IsIdleWaits: "`is_idle` waits for the stream.", 116, "`is_idle` took";
    IsIdleForgetsAWait: "`is_idle` is true while the stream has only a wait left.", 120,
        "`is_idle` said yes for a stream with a `wait`";
    SynchronizeDoesNothing: "`synchronize` returns at once.", 117, "`synchronize` returned, and";
    SynchronizeGivesUp: "`synchronize` returns after a millisecond, done or not.", 117, "`synchronize` returned, and";
    SynchronizeWaitsForTheFirst: "`synchronize` waits for the first piece of work only.", 117,
        "`synchronize` returned, and";
    SynchronizeOfTheDefaultStream: "`synchronize` waits for the default stream, whatever the stream.", 117,
        "`synchronize` returned, and";
    WaitHostDoesNothing: "`wait_host` returns at once.", 118, "`wait_host` returned, and";
    WaitHostGivesUp: "`wait_host` returns after a millisecond, done or not.", 118, "`wait_host` returned, and";

    // Streams that wait for events.
    WaitDoesNothing: "`wait` does nothing.", 119, "`wait` did not hold back";
    WaitForSideStreamsDoesNothing: "`wait` ignores events of side streams.", 119, "`wait` did not hold back";
    WaitDeferred: "`wait` takes effect at the next copy or fill of the stream.", 120,
        "for an event recorded behind a `wait`";
    OnlyTheLastWaitCounts: "Of several waits in a row, only the last takes effect.", 119, "`wait` did not hold back";
    WaitBlocksTheHost: "`wait` blocks the host until the event is reached.", 121, "`wait` took";
    WaitFollowsTheEvent: "A wait is for the record that the event has when the next work is submitted.", 123,
        "a later `record` on an idle stream ended a `wait`";
    WaitForAnUnrecordedEventHangs: "A wait for an event that was never recorded stops the stream.", 124,
        "`wait` and `wait_host` do nothing";
    DroppedEventFreesItsWaiters: "A wait is forgotten when its event is dropped.", 125,
        "an event was dropped after `wait`";
    DroppedEventStopsItsStream: "Dropping a pending event stops the stream that recorded it.", 125,
        "`synchronize` has not returned";

    // Events.
    SecondRecordIgnored: "Only the first record of an event counts.", 122, "`record` was called again";
    RecordOneSubmissionEarly: "`record` places the event before the last copy or fill.", 118,
        "`wait_host` returned, and";
    RecordWhilePendingRefused: "`record` refuses an event that is still pending.", 123, "`record` failed";
    RecordsAtOnceLost: "When two threads record at the same time, one of the records is lost.", 142,
        "with 8 threads, after `record`";
    UnrecordedIsIncomplete: "An event that was never recorded is not complete.", 124,
        "`is_complete` said no for an event that was never recorded";
    UnrecordedHangsTheHost: "`wait_host` for an event that was never recorded waits for ever.", 124,
        "`wait_host` has not returned";
    EventsRunOut: "`event` fails once 100 events were made, dropped or not.", 142, "`event` failed";
    InterprocessRefusedAsOther: "`event` refuses interprocess events as `Other`.", 145,
        "`event` did not answer `Unsupported`";
    EventIdsAllEqual: "`event_id` is 1 for every event.", 147, "`event_id` has 1 values";

    // Elapsed time.
    ElapsedBackwards: "`elapsed_ns` has the wrong sign.", 133, "`elapsed_ns` says";
    ElapsedSignLost: "`elapsed_ns` is never negative.", 133, "`elapsed_ns` says";
    ElapsedZero: "`elapsed_ns` is always 0.", 132, "`elapsed_ns` says";
    ElapsedInMicroseconds: "`elapsed_ns` returns microseconds.", 132, "`elapsed_ns` says";
    ElapsedInTicks: "`elapsed_ns` returns ticks of 52 nanoseconds.", 132, "`elapsed_ns` says";
    ElapsedTooLarge: "`elapsed_ns` is 1,000 times too large.", 132, "`elapsed_ns` says";
    ElapsedWraps: "`elapsed_ns` wraps after 20 bits.", 132, "`elapsed_ns` says";
    ElapsedOfTwoClocks: "`elapsed_ns` between two streams is wrong, since each stream has a clock of its own.", 132,
        "between events of two streams";
    ElapsedOfTheSubmission: "`elapsed_ns` is the host's time between the two calls of `record`.", 132,
        "`elapsed_ns` says";
    TimingRefused: "`event` leaves timing out, and `elapsed_ns` fails.", 132, "`elapsed_ns` failed";

    // Fills.
    FillDoesNothing: "`fill` does nothing.", 126, "`fill` of 1 bytes at offset 0";
    FillValueLost: "`fill` writes zeros.", 126, "`fill` of 1 bytes at offset 0";
    FillRoundedDown: "`fill` rounds its length down to 4 bytes.", 126, "`fill` of 1 bytes at offset 0";
    FillRoundedUp: "`fill` rounds its length up to 4 bytes.", 126, "`fill` of 1 bytes at offset 0";
    FillAligned: "`fill` starts at a multiple of 4 bytes.", 126, "`fill` of 1 bytes at offset 1";
    FillOffsetIgnored: "`fill` starts at the beginning of the allocation.", 126, "`fill` of 1 bytes at offset 0";
    FillOfTheFirstPart: "`fill` writes the first 16 MiB only.", 128, "`fill` of 34,603,009 bytes";
    ShortFillOvertakes: "`fill` of up to 1 MiB does not wait for earlier work of its stream.", 129,
        "`copy` and `fill` on one stream did not run in the order of submission";
    ShortFillWaits: "`fill` of up to 1 MiB waits until the stream is idle.", 131, "`fill` took";

    // Copies.
    CopyDoesNothing: "`copy` does nothing.", 127, "`copy` of 1 bytes from device memory";
    CopyOneByteShort: "`copy` leaves out the last byte.", 127, "`copy` of 1 bytes from device memory";
    CopyRoundedDown: "`copy` rounds its length down to 4 bytes.", 127, "`copy` of 1 bytes from device memory";
    CopySourceOffsetIgnored: "`copy` reads from the beginning of the allocation.", 127,
        "`copy` of 1 bytes from device memory";
    CopyDestinationOffsetIgnored: "`copy` writes to the beginning of the allocation.", 127,
        "`copy` of 1 bytes from device memory";
    CopyReversed: "`copy` between two places on the device swaps them.", 127,
        "`copy` of 1 bytes from device memory at offset 0 to device memory";
    CopyOnTheDeviceLost: "`copy` between two places on the device does nothing.", 127,
        "`copy` of 1 bytes from device memory at offset 0 to device memory";
    CopyOfTheFirstPart: "`copy` copies the first 16 MiB only.", 128, "`copy` of 34,603,009 bytes";
    CopyOvertakes: "`copy` does not wait for earlier work of its stream.", 129,
        "`copy` and `fill` on one stream did not run in the order of submission";
    PinnedStagedAtSubmission: "`copy` reads pinned memory when it is submitted.", 129,
        "`copy` read pinned memory before";
    PageableStagedAtSubmission: "`copy` reads pageable memory when it is submitted.", 130,
        "`copy` read pageable memory before", on [Host, Xpu];
    CopyToTheHostIsLate: "A copy to the host arrives when the stream is synchronized.", 118,
        "`wait_host` returned, and";
    CopyWaits: "`copy` waits until the stream is idle.", 131, "`copy` within the device took";

    // Device memory.
    AllocMisaligned: "`alloc` returns memory at half the stated alignment.", 134, "`alloc` of 1 bytes returned";
    AllocOverlaps: "Every second allocation begins inside the one before.", 134, "`alloc` of 2 bytes returned";
    OutOfMemoryAsOther: "`alloc` reports lack of memory as `Other`.", 135, "`alloc` did not answer `OutOfMemory`";
    OutOfMemoryAsTooLarge: "`alloc` reports lack of memory as `AllocationTooLarge`.", 135,
        "`alloc` did not answer `OutOfMemory`";
    OutOfMemoryPanics: "`alloc` panics when the memory is full.", 135, "`alloc` panicked";
    OutOfMemoryForEver: "After `alloc` failed once, it always fails.", 135, "`alloc` failed";
    TooLargeAsOutOfMemory: "`alloc` reports a request over the driver's limit as `OutOfMemory`.", 136,
        "did not answer `AllocationTooLarge`";
    MoreThanAllAsTooLarge: "`alloc` reports a request for more than the device has as `AllocationTooLarge`.", 136,
        "did not answer `OutOfMemory`";
    LargestAllocationNotKept: "`alloc` refuses requests below the stated limit.", 136,
        "the `largest_allocation` that `properties` states";
    DeallocLeaks: "`dealloc` does nothing.", 138, "`dealloc` gives nothing back";
    DeallocDoesNotWait: "`dealloc` frees memory that earlier work still uses: its bytes change at once.", 139,
        "`dealloc` gave memory back while a copy submitted before still read it";
    DeallocReusesAtOnce: "`alloc` returns memory that earlier work still uses.", 139,
        "`dealloc` gave memory back while a copy submitted before still read it";
    DeallocFreesAnother: "`dealloc` frees another allocation of the same length.", 138,
        "`dealloc` gives nothing back";
    MemoryInfoSwapped: "`memory_info` swaps free and total memory.", 137, "`memory_info` says";
    MemoryInfoNeverChanges: "`memory_info` always returns its first answer.", 137, "`memory_info` says";
    MemoryInfoInKib: "`memory_info` counts in KiB.", 137, "`memory_info` says";
    MemoryInfoBackwards: "`memory_info` adds allocations to the free memory.", 137, "`memory_info` says";
    MemoryInfoForgetsDealloc: "`memory_info` never returns more free memory than before.", 137, "`memory_info` says";
    MemoryInfoTotalIsFree: "`memory_info` returns the free memory as the total, too.", 137, "`memory_info` says";

    // Host memory.
    AllocHostMisaligned: "`alloc_host` returns memory aligned to 8 bytes.", 140, "`alloc_host` of 1 bytes returned";
    AllocHostOverlaps: "Every second allocation of host memory begins inside the one before.", 140,
        "`alloc_host` returned memory that overlaps";
    AllocHostPanics: "`alloc_host` panics when it gets too large a request.", 140, "`alloc_host` panicked";
    AllocHostRefusesAsOther: "`alloc_host` reports lack of memory as `Other`.", 140, "did not answer `OutOfMemory`";
    DeallocHostFreesAnother: "`dealloc_host` overwrites another allocation.", 140,
        "`dealloc_host` changed other memory";

    // Threads and streams.
    OtherThreadsRefused: "Calls from threads other than the first fail.", 142, "`stream` failed";
    SubmissionsAtOnceLost: "When two threads submit work to a stream at the same time, one piece is lost.", 142,
        "with 8 threads, after `record`";
    DroppedStreamLosesItsEvents: "Events are never reached once their stream is dropped.", 149,
        "`is_complete` still said no";
    DroppedStreamCompletesItsEvents: "Dropping a stream completes its events, though its work still runs.", 149,
        "a stream was dropped, `is_complete` said yes";
    StreamsRunOut: "`stream` fails once there are 16 streams.", 141, "`stream` failed";

    // Work on the same bytes.
    ConflictsOverlap: "Other work runs between the halves of a copy, though `serializes_conflicts` is true.", 148,
        "`serializes_conflicts` is true, but";
    ConflictsAtTwoAddressesOverlap: "The same, for work that uses the bytes of the copy at another address.", 114,
        "`serializes_conflicts` is true, but";

    // Devices and properties.
    DroppedBackendDoesNotWait: "Dropping the backend does not wait for its work, which goes on.", 143,
        "work went on after its backend had been dropped";
    ProbeOneTooMany: "`probe` counts one device too many.", 144, "`probe` found 2 devices, but";
    ProbeChanges: "`probe` counts one more device at each call.", 144, "`probe` found 2 devices and then 3";
    OpenFails: "`open` fails for every device.", 144, "cannot be opened";
    OpenAcceptsAnyNumber: "`open` opens the first device for any number.", 144, "`open(1)` opened a device";
    OpenRefusesAsOther: "`open` refuses an unknown number as `Other`.", 144, "did not answer `InvalidArgument`";
    PropertiesChange: "`properties` returns another amount of memory at each second call.", 145,
        "`properties` changed";
    AlignmentTooLarge: "The stated alignment is 1 GiB.", 134, "bytes that `properties` states";
    AlignmentOdd: "The stated alignment is 384, which is not a power of two.", 145,
        "`properties` states an `alignment` of 384";
    PrioritiesReversed: "The stated stream priorities are (least, greatest) swapped.", 145,
        "`properties` states `stream_priorities`";
    TotalMemoryZero: "The stated total memory is 0.", 145, "`properties` states a `total_memory` of 0";
    NamelessDevice: "The device's name is empty.", 145, "`properties` states an empty `name`";

    // Virtual memory.
    GranularityTooSmall: "`granularity` is 512, which the driver does not support.", 146,
        "accept all multiples of `granularity`";
    MapIgnoresTheOffset: "`map` maps memory at the beginning of the reservation.", 146, "`map`";
    UnmapDoesNothing: "`unmap` leaves the memory mapped, and `map` fails there.", 146,
        "`unmap` removes a mapping", on [Cuda, Xpu];
    UnmapIgnoresTheOffset: "`unmap` removes the mapping at the beginning of the reservation.", 146,
        "`unmap` removes a mapping";
    ReservesAtOnceOverlap: "When two threads reserve address space at the same time, both get the same.", 142,
        "with 8 threads, `reserve` of";
    DestroyLeaks: "`destroy` does nothing.", 146, "`destroy` gives nothing back";
    MapsTwiceLies: "`maps_twice` is true, but the second address has other memory.", 146,
        "`maps_twice` says yes, but";

    // Memory between processes.
    ImportsOtherMemory: "`import` returns new memory.", 156, "`import` opens the memory", on [Host, Cuda];
    ImportsOtherPages: "`import_pages` returns new memory.", 156, "`import` opens the memory", on [Host, Cuda];

    // Graphs.
    CapturedWorkRunsAtOnce: "Captured work also runs at once.", 150, "a captured `fill` ran before `launch`", on [Host, Cuda];
    LaunchDoesNothing: "`launch` does nothing.", 150, "`launch` did not run a captured `fill`", on [Host, Cuda];
    LaunchOnlyOnce: "Only the first launch of a graph does anything.", 150,
        "`launch` did not run a captured `fill`", on [Host, Cuda];
    WaitDoesNotJoinACapture: "A `wait` for an event of a capture does nothing on a stream that does not capture.", 151,
        "after `wait` for one that waits for it", on [Host];
    CaptureNumbersRepeat: "`capture_of` is 1 for every capture.", 151, "`capture_of` has the same number", on [Host, Cuda];
    EndJoinsStreams: "`end` waits for streams that the program forgot to wait for.", 152,
        "`end` did not fail, though another", on [Host, Cuda];
    FailedEndKeepsTheCapture: "Streams capture for ever once `end` has failed.", 152,
        "after an `end` that failed, `capture_of`", on [Host, Cuda];
    EndWithoutBegin: "`end` returns an empty graph for a stream that does not capture.", 152,
        "`end` did not fail on a stream", on [Host, Cuda];
    BeginTwice: "`begin` does nothing on a stream that captures.", 152, "`begin` did not fail", on [Host, Cuda];
    SynchronizeInACapture: "`synchronize` returns at once while the stream captures.", 153,
        "`synchronize` did not fail", on [Host, Cuda];
    IsIdleInACapture: "`is_idle` is true while the stream captures.", 153, "`is_idle` did not fail", on [Host, Cuda];
    IsCompleteInACapture: "`is_complete` is true for an event that was recorded in a capture.", 153,
        "`is_complete` did not fail", on [Host, Cuda];
    WaitHostInACapture: "`wait_host` returns at once for an event that was recorded in a capture.", 153,
        "`wait_host` did not fail", on [Host, Cuda];
    RefusedQueryLosesCapturedWork: "An `is_idle` that fails forgets what the stream has captured.", 153,
        "captured work was lost after `is_idle`", on [Host];
    LaunchOvertakesItsStream: "`launch` does not wait for earlier work of the stream.", 154,
        "`launch` ran before earlier work", on [Host, Cuda];
    LaunchesOverlap: "A launch does not wait for the launch before on another stream.", 154,
        "`launch` ran before earlier work", on [Host, Cuda];
    MarkOutsideOfCaptures: "`mark` returns 0 for a stream that captures nothing.", 155,
        "`mark` has a number", on [Host, Cuda];
    PrecedeAlwaysTrue: "`precede` is always true.", 155, "`precede` says", on [Host, Cuda];
    PrecedeAlwaysFalse: "`precede` is always false.", 155, "`precede` says", on [Host, Cuda];
    PrecedeIgnoresOrder: "`precede` answers in the order of the marks, not of the question.", 155,
        "`precede` says", on [Host, Cuda];
}
