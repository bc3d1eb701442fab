//! Frames over a stream socket, with file descriptors.
//!
//! A frame is four bytes of length (little-endian), one byte that says how many descriptors it takes,
//! and the message. Descriptors travel attached to a byte of their frame or of one before it, and wait
//! in a queue: the kernel keeps their order, but not where in a read they belong.
//!
//! Invariant: whatever the other side sends gives messages or an error, in bounded memory. It never
//! blocks: what cannot be sent now waits in the queue, whose length its owner watches.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::protocol::MAX_FRAME;

/// The most descriptors a frame can take, and the most that are sent at once.
pub const MAX_DESCRIPTORS: usize = 4;

const HEADER: usize = 5;
const BUFFER: usize = 16 << 10;
/// Small frames are sent together, but not so many that the first waits for the last.
const PARCEL: usize = 32 << 10;
/// The room of a parcel that was sent is used for the next one, unless it is more than this.
const SPARE: usize = 8 << 10;
/// A queue that has had room for more than this gives it back.
const MANY_PARCELS: usize = 64;
/// More descriptors than this without frames that take them is not a mistake any more.
const MAX_WAITING: usize = 64;

/// One end of a connection: sends `Out`, receives `In`.
#[derive(Debug)]
pub struct Channel<Out, In> {
    socket: OwnedFd,
    outbox: VecDeque<Parcel>,
    queued: usize,
    spare: Vec<u8>,
    /// What was received is `buffer[start..end]`; the rest is room.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    descriptors: VecDeque<OwnedFd>,
    messages: PhantomData<fn(Out) -> In>,
}

/// Frames to be sent together, and the descriptors that go with their first byte.
#[derive(Debug)]
struct Parcel {
    bytes: Vec<u8>,
    sent: usize,
    descriptors: Vec<OwnedFd>,
}

/// Whether everything has been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// The queue is empty.
    All,
    /// The socket takes no more for now; flush again when it is writable.
    Blocked,
}

/// Why a channel is of no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelError {
    /// The other side has gone.
    Closed,
    /// A frame is longer than [`MAX_FRAME`]: this many bytes.
    TooLong(usize),
    /// The bytes of a frame are no message.
    Garbled,
    /// The descriptors that a frame announced did not come, or too many came.
    Descriptors,
    /// The system's error.
    System(Errno),
}

impl std::fmt::Display for ChannelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ChannelError::Closed => f.write_str("the other side has gone"),
            ChannelError::TooLong(bytes) => write!(f, "a frame of {bytes} bytes is too long"),
            ChannelError::Garbled => f.write_str("a frame is no message"),
            ChannelError::Descriptors => f.write_str("descriptors are missing or too many"),
            ChannelError::System(errno) => errno.fmt(f),
        }
    }
}

impl std::error::Error for ChannelError {}

impl From<Errno> for ChannelError {
    fn from(errno: Errno) -> ChannelError {
        match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => ChannelError::Closed,
            other => ChannelError::System(other),
        }
    }
}

impl<Out: Serialize, In: DeserializeOwned> Channel<Out, In> {
    /// Speaks over a connected stream socket. It need not be set to nonblocking.
    pub fn new(socket: OwnedFd) -> Channel<Out, In> {
        Channel {
            socket,
            outbox: VecDeque::new(),
            queued: 0,
            spare: Vec::new(),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            descriptors: VecDeque::new(),
            messages: PhantomData,
        }
    }

    /// Queues a message and duplicates of the descriptors that go with it; [`Channel::flush`] sends.
    pub fn send(&mut self, message: &Out, fds: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        if fds.len() > MAX_DESCRIPTORS {
            return Err(ChannelError::Descriptors);
        }
        let descriptors: Vec<OwnedFd> = fds
            .iter()
            .map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 0))
            .collect::<Result<_, _>>()?;
        let joins = self.outbox.back().is_some_and(|parcel| {
            parcel.bytes.len() < PARCEL
                && parcel.descriptors.len() + descriptors.len() <= MAX_DESCRIPTORS
        });
        if !joins {
            let bytes = std::mem::take(&mut self.spare);
            self.outbox.push_back(Parcel { bytes, sent: 0, descriptors: Vec::new() });
        }
        let Some(parcel) = self.outbox.back_mut() else { return Err(ChannelError::Garbled) };
        let begin = parcel.bytes.len();
        let result = write_frame(&mut parcel.bytes, message, fds.len());
        if result.is_err() {
            parcel.bytes.truncate(begin);
            if !joins {
                self.outbox.pop_back();
            }
            return result;
        }
        parcel.descriptors.extend(descriptors);
        self.queued += parcel.bytes.len() - begin;
        Ok(())
    }

    /// Sends what is queued, as far as the socket takes it.
    pub fn flush(&mut self) -> Result<Flushed, ChannelError> {
        while let Some(parcel) = self.outbox.front_mut() {
            let fds: Vec<BorrowedFd<'_>> = parcel.descriptors.iter().map(AsFd::as_fd).collect();
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
                return Err(ChannelError::Descriptors);
            }
            let rest = parcel.bytes.get(parcel.sent..).unwrap_or_default();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = match rustix::net::sendmsg(
                &self.socket,
                &[IoSlice::new(rest)],
                &mut control,
                flags,
            ) {
                Ok(sent) => sent,
                Err(Errno::AGAIN) => return Ok(Flushed::Blocked),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if sent > 0 {
                parcel.descriptors.clear();
            }
            parcel.sent += sent;
            self.queued = self.queued.saturating_sub(sent);
            if parcel.sent >= parcel.bytes.len()
                && let Some(Parcel { mut bytes, .. }) = self.outbox.pop_front()
                && bytes.capacity() <= SPARE
            {
                bytes.clear();
                self.spare = bytes;
            }
        }
        if self.outbox.capacity() > MANY_PARCELS {
            self.outbox = VecDeque::new();
        }
        Ok(Flushed::All)
    }

    /// How many bytes wait to be sent.
    pub fn queued_bytes(&self) -> usize {
        self.queued
    }

    /// How many parcels wait to be sent; each that has descriptors holds duplicates of them.
    pub(crate) fn queued_parcels(&self) -> usize {
        self.outbox.len()
    }

    /// Forgets what is queued: nobody is there to take it.
    pub(crate) fn discard_queued(&mut self) {
        self.outbox.clear();
        self.queued = 0;
    }

    /// The next message and its descriptors (all close-on-exec), or `None` if none has come yet.
    pub fn receive(&mut self) -> Result<Option<(In, Vec<OwnedFd>)>, ChannelError> {
        loop {
            if let Some(message) = self.parse()? {
                return Ok(Some(message));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Whether the next message has been received already.
    pub fn holds_message(&self) -> bool {
        let held = self.buffer.get(self.start..self.end).unwrap_or_default();
        held.split_first_chunk::<HEADER>().is_some_and(|(&[a, b, c, d, _], rest)| {
            rest.len() >= u32::from_le_bytes([a, b, c, d]) as usize
        })
    }

    fn parse(&mut self) -> Result<Option<(In, Vec<OwnedFd>)>, ChannelError> {
        let held = self.buffer.get(self.start..self.end).unwrap_or_default();
        let Some((&[a, b, c, d, count], rest)) = held.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let (length, count) = (u32::from_le_bytes([a, b, c, d]) as usize, usize::from(count));
        if length > MAX_FRAME {
            return Err(ChannelError::TooLong(length));
        }
        if count > MAX_DESCRIPTORS {
            return Err(ChannelError::Descriptors);
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        if count > self.descriptors.len() {
            return Err(ChannelError::Descriptors);
        }
        let (message, beyond) =
            postcard::take_from_bytes(body).map_err(|_| ChannelError::Garbled)?;
        if !beyond.is_empty() {
            return Err(ChannelError::Garbled);
        }
        self.start += HEADER + length;
        Ok(Some((message, self.descriptors.drain(..count).collect())))
    }

    /// Reads once. False: there is nothing to read.
    fn fill(&mut self) -> Result<bool, ChannelError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > BUFFER {
                self.buffer = Vec::new();
            }
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            // Grows with what has come, not with what is announced.
            self.buffer.resize((self.buffer.len() * 2).clamp(BUFFER, HEADER + MAX_FRAME), 0);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = loop {
            match rustix::net::recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(room)],
                &mut control,
                flags,
            ) {
                Ok(got) => break got,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.descriptors.extend(fds);
            }
        }
        if got.flags.contains(ReturnFlags::CTRUNC) || self.descriptors.len() > MAX_WAITING {
            return Err(ChannelError::Descriptors);
        }
        if got.bytes == 0 {
            return Err(ChannelError::Closed);
        }
        self.end += got.bytes;
        Ok(true)
    }
}

impl<Out, In> AsFd for Channel<Out, In> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A message is written behind what is there.
pub(crate) struct Tail<'a>(pub(crate) &'a mut Vec<u8>);

impl Extend<u8> for Tail<'_> {
    fn extend<T: IntoIterator<Item = u8>>(&mut self, bytes: T) {
        self.0.extend(bytes);
    }
}

fn write_frame<T: Serialize>(
    bytes: &mut Vec<u8>,
    message: &T,
    descriptors: usize,
) -> Result<(), ChannelError> {
    let begin = bytes.len();
    bytes.extend([0; HEADER]);
    postcard::to_extend(message, Tail(&mut *bytes)).map_err(|_| ChannelError::Garbled)?;
    let length = bytes.len() - begin - HEADER;
    if length > MAX_FRAME {
        return Err(ChannelError::TooLong(length));
    }
    // Both fit: MAX_FRAME is below four bytes' range, MAX_DESCRIPTORS below one's.
    let [a, b, c, d, ..] = length.to_le_bytes();
    let header = [a, b, c, d, descriptors.to_le_bytes()[0]];
    if let Some(place) = bytes.get_mut(begin..begin + HEADER) {
        place.copy_from_slice(&header);
    }
    Ok(())
}
