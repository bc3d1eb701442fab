//! Whatever comes over the socket gives messages or an error.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use defib_host::protocol::{MAX_FRAME, Request};
use defib_host::{Channel, ChannelError, Flushed, MAX_DESCRIPTORS};
use proptest::prelude::*;

fn pair<A: serde::Serialize, B: serde::de::DeserializeOwned>() -> (UnixStream, Channel<A, B>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (ours, Channel::new(theirs.into()))
}

fn frame(bytes: &[u8], descriptors: u8) -> Vec<u8> {
    let mut frame = u32::try_from(bytes.len()).unwrap().to_le_bytes().to_vec();
    frame.push(descriptors);
    frame.extend_from_slice(bytes);
    frame
}

/// Everything that is received, until nothing more has come or something went wrong.
fn drain<B: serde::de::DeserializeOwned>(
    channel: &mut Channel<(), B>,
    received: &mut Vec<B>,
) -> Result<(), ChannelError> {
    while let Some((message, _)) = channel.receive()? {
        received.push(message);
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_give_messages_or_an_error(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..20),
        small in any::<bool>(),
    ) {
        let (ours, mut channel) = pair::<(), Request>();
        let mut received = Vec::new();
        for mut piece in pieces {
            if small {
                // Lengths that are within bounds, so that the message itself is parsed.
                piece.splice(0..0, [u8::try_from(piece.len()).unwrap(), 0, 0, 0, 0]);
            }
            rustix::io::write(&ours, &piece).unwrap();
            if drain(&mut channel, &mut received).is_err() {
                break;
            }
        }
    }

    #[test]
    fn messages_come_as_they_were_sent_however_they_are_cut(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5000), 1..10),
        cuts in prop::collection::vec(1_usize..3000, 1..50),
    ) {
        let (ours, mut channel) = pair::<(), Vec<u8>>();
        let mut bytes = Vec::new();
        for message in &messages {
            bytes.extend(frame(&encoded(message), 0));
        }
        let mut received: Vec<Vec<u8>> = Vec::new();
        let mut rest = bytes.as_slice();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, others) = rest.split_at((*cut).min(rest.len()));
            rustix::io::write(&ours, piece).unwrap();
            rest = others;
            drain(&mut channel, &mut received).unwrap();
        }
        prop_assert_eq!(received, messages);
    }
}

/// As postcard writes it: the length in groups of seven bits, then the bytes.
fn encoded(message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut length = message.len();
    while length >= 128 {
        bytes.push(u8::try_from(length % 128).unwrap() | 128);
        length /= 128;
    }
    bytes.push(u8::try_from(length).unwrap());
    bytes.extend_from_slice(message);
    bytes
}

#[test]
fn a_frame_that_is_too_long_is_refused_before_its_bytes_come() {
    let (ours, mut channel) = pair::<(), Vec<u8>>();
    let length = u32::try_from(MAX_FRAME + 1).unwrap();
    rustix::io::write(&ours, &[&length.to_le_bytes()[..], &[0]].concat()).unwrap();
    assert_eq!(channel.receive().unwrap_err(), ChannelError::TooLong(MAX_FRAME + 1));
    let mut channel: Channel<Vec<u8>, ()> = Channel::new(ours.into());
    let long = vec![0; MAX_FRAME];
    assert!(matches!(channel.send(&long, &[]), Err(ChannelError::TooLong(_))));
    assert_eq!(channel.queued_bytes(), 0);
    assert_eq!(channel.flush(), Ok(Flushed::All));
}

#[test]
fn a_frame_with_bytes_beyond_its_message_is_refused() {
    let (ours, mut channel) = pair::<(), u8>();
    rustix::io::write(&ours, &frame(&[1, 2], 0)).unwrap();
    assert_eq!(channel.receive().unwrap_err(), ChannelError::Garbled);
}

#[test]
fn a_frame_whose_descriptors_did_not_come_is_refused() {
    for count in [1, 200] {
        let (ours, mut channel) = pair::<(), u8>();
        rustix::io::write(&ours, &frame(&[1], count)).unwrap();
        assert_eq!(channel.receive().unwrap_err(), ChannelError::Descriptors);
    }
}

#[test]
fn descriptors_come_with_their_own_messages_and_are_not_inherited() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut sender: Channel<u32, ()> = Channel::new(ours.into());
    let mut receiver: Channel<(), u32> = Channel::new(theirs.into());
    let file = |name: u32| {
        let path = std::env::temp_dir().join(format!("defib-fd-{}-{name}", std::process::id()));
        std::fs::write(&path, name.to_string()).unwrap();
        let file: OwnedFd = std::fs::File::open(&path).unwrap().into();
        std::fs::remove_file(path).unwrap();
        file
    };
    // Plenty, so that some wait in the queue and the socket takes them in pieces.
    let mut next = 0;
    let mut sent = 0;
    while next < 2000 {
        if sent < 2000 {
            let fds: Vec<OwnedFd> = (0..sent % 3).map(|_| file(sent)).collect();
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            sender.send(&sent, &fds).unwrap();
            sent += 1;
        }
        if sent % 7 == 0 || sent == 2000 {
            sender.flush().unwrap();
        }
        if sent % 50 != 0 && sent < 2000 {
            continue;
        }
        while let Some((message, fds)) = receiver.receive().unwrap() {
            assert_eq!(message, next);
            assert_eq!(fds.len(), (message % 3) as usize);
            for fd in fds {
                let flags = rustix::io::fcntl_getfd(&fd).unwrap();
                assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
                let mut text = [0; 16];
                let bytes = rustix::io::read(&fd, &mut text).unwrap();
                assert_eq!(std::str::from_utf8(&text[..bytes]).unwrap(), message.to_string());
            }
            next += 1;
        }
    }
    drop(sender);
    assert_eq!(receiver.receive().unwrap_err(), ChannelError::Closed);
}

#[test]
fn messages_that_bring_a_descriptor_each_go_together_as_far_as_one_sending_takes() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut sender: Channel<usize, ()> = Channel::new(ours.into());
    let mut receiver: Channel<(), usize> = Channel::new(theirs.into());
    for number in 0..=MAX_DESCRIPTORS {
        sender.send(&number, &[std::io::stderr().as_fd()]).unwrap();
    }
    assert_eq!(sender.flush(), Ok(Flushed::All));
    for number in 0..=MAX_DESCRIPTORS {
        let (message, descriptors) = receiver.receive().unwrap().unwrap();
        assert_eq!((message, descriptors.len()), (number, 1));
        let last_of_a_sending = number + 1 >= MAX_DESCRIPTORS;
        assert_eq!(receiver.holds_message(), !last_of_a_sending, "after {number}");
    }
}

#[test]
fn it_is_known_whether_the_next_message_is_there_without_asking_the_socket() {
    let (ours, mut channel) = pair::<(), u8>();
    assert!(!channel.holds_message());
    let (first, second, third) = (frame(&[7], 0), frame(&[8], 0), frame(&[9], 0));
    let (half, rest) = third.split_at(5);
    rustix::io::write(&ours, &[first, second, half.to_vec()].concat()).unwrap();
    assert!(!channel.holds_message(), "nothing has been received");
    assert_eq!(channel.receive().unwrap().map(|(it, _)| it), Some(7));
    assert!(channel.holds_message());
    assert_eq!(channel.receive().unwrap().map(|(it, _)| it), Some(8));
    assert!(!channel.holds_message(), "half of one is none");
    assert!(channel.receive().unwrap().is_none());
    rustix::io::write(&ours, rest).unwrap();
    assert_eq!(channel.receive().unwrap().map(|(it, _)| it), Some(9));
    assert!(!channel.holds_message());
}
