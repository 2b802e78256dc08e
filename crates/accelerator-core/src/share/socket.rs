//! Messages with file descriptors, over sockets of the system that keep messages apart.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg, socket_with,
};

use super::description::PIECES;
use crate::types::SharingProblem;

/// The number of bytes of a name or of a secret: too many to guess.
pub(super) const RANDOM: usize = 16;
/// The server's answer if the memory is not shared any more.
pub(super) const WITHDRAWN: &[u8] = b"withdrawn";

pub(super) type Secret = [u8; RANDOM];

/// What a process asks the server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The number of an import, which the process chooses.
    pub(super) number: u64,
    /// What it imports. Without it, the import is over.
    pub(super) secret: Option<Secret>,
}

impl Request {
    /// The largest length of its message.
    pub(super) const LEN: usize = 8 + RANDOM;

    pub(super) fn to_bytes(self) -> Vec<u8> {
        [&self.number.to_le_bytes()[..], self.secret.as_ref().map_or(&[], |secret| &secret[..])].concat()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (number, secret) = bytes.split_first_chunk()?;
        let secret = if secret.is_empty() { None } else { Some(secret.try_into().ok()?) };
        Some(Self { number: u64::from_le_bytes(*number), secret })
    }
}

pub(super) fn random() -> Result<Secret, SharingProblem> {
    let mut bytes = [0; RANDOM];
    let got = retry_on_intr(|| rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()));
    got.map_err(|error| failed("getrandom", error)).map(|_| bytes)
}

/// Returns the address of the server with this name, which is in no file system.
pub(super) fn address(name: &Secret) -> Result<SocketAddrUnix, SharingProblem> {
    let mut text = b"accelerator-memory-".to_vec();
    text.extend(
        name.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| b"0123456789abcdef"[usize::from(digit)]),
    );
    SocketAddrUnix::new_abstract_name(&text).map_err(|error| failed("bind", error))
}

pub(super) fn socket() -> Result<OwnedFd, SharingProblem> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    socket.map_err(|error| failed("socket", error))
}

/// Lets calls on a connection fail if the other process does nothing for this time.
pub(super) fn limit(connection: &OwnedFd, time: Duration) -> Result<(), SharingProblem> {
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(connection, direction, Some(time)).map_err(|error| failed("setsockopt", error))?;
    }
    Ok(())
}

/// Returns whether the process at the other end of a connection belongs to this user, or to the superuser.
pub(super) fn is_trusted(connection: &OwnedFd) -> bool {
    socket_peercred(connection).is_ok_and(|peer| peer.uid == rustix::process::geteuid() || peer.uid.is_root())
}

/// Sends a message with descriptors.
pub(super) fn send(to: BorrowedFd<'_>, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), SharingProblem> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(PIECES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(SharingProblem::NoAnswer);
    }
    let sent = retry_on_intr(|| sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL));
    match sent {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(SharingProblem::NoAnswer),
        Err(error) => Err(unanswered("sendmsg", error)),
    }
}

/// Receives a message of at most `len` bytes, and its descriptors.
pub(super) fn receive(from: BorrowedFd<'_>, len: usize) -> Result<(Vec<u8>, Vec<OwnedFd>), SharingProblem> {
    let mut bytes = vec![0; len];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(PIECES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = retry_on_intr(|| recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags));
    let got = got.map_err(|error| unanswered("recvmsg", error))?;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            files.extend(descriptors);
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(failed("recvmsg", Errno::MFILE)); // the system drops descriptors that find no room
    }
    match got.bytes {
        0 => Err(SharingProblem::Gone),
        _ if got.flags.contains(ReturnFlags::TRUNC) => Err(SharingProblem::NoAnswer),
        len => {
            bytes.truncate(len);
            Ok((bytes, files))
        }
    }
}

/// The error of a call on a connection: the other process may have ended, or not answer.
pub(super) fn unanswered(call: &'static str, error: Errno) -> SharingProblem {
    match error {
        Errno::AGAIN => SharingProblem::NoAnswer,
        Errno::PIPE | Errno::CONNRESET => SharingProblem::Gone,
        error => failed(call, error),
    }
}

pub(super) fn failed(call: &'static str, error: Errno) -> SharingProblem {
    SharingProblem::System { call, code: error.raw_os_error() }
}
