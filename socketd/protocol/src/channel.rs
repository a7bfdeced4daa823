//! The two ends of a session, each with one request ring and one response ring, and their transport.

use crate::codec::{HEADER_WORDS, MessageHeader};
use crate::message::{Error, Request, RequestId, Response};
use crate::ring::{PushError, Reader, Violation, Writer};
use crate::{RingSizes, WORD};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One end of the shared memory of a session.
pub trait Transport {
    /// Returns the shared memory, [`RingSizes::words`] words that are zero at first. The other end may
    /// write to it at any time.
    fn memory(&self) -> &[AtomicU64];

    /// Notifies the other end soon. Several notifications may be merged into one. Must not block,
    /// whatever the other end does.
    fn notify(&self);
}

/// A transport within one process: for tests, and for systems where applications and server share an
/// address space.
#[derive(Debug, Clone)]
pub struct LocalTransport {
    memory: Arc<[AtomicU64]>,
    own_flag: Arc<AtomicBool>,
    peer_flag: Arc<AtomicBool>,
}

impl LocalTransport {
    /// Creates both ends.
    pub fn pair(sizes: RingSizes) -> (Self, Self) {
        let memory: Vec<AtomicU64> = (0..sizes.words()).map(|_| AtomicU64::new(0)).collect();
        let memory: Arc<[AtomicU64]> = memory.into();
        let [own_flag, peer_flag] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let first = Self { memory: memory.clone(), own_flag: own_flag.clone(), peer_flag: peer_flag.clone() };
        (first, Self { memory, own_flag: peer_flag, peer_flag: own_flag })
    }

    /// Returns whether the other end has sent a notification since the previous call.
    pub fn was_notified(&self) -> bool {
        self.own_flag.swap(false, Ordering::AcqRel)
    }
}

impl Transport for LocalTransport {
    fn memory(&self) -> &[AtomicU64] {
        &self.memory
    }

    fn notify(&self) {
        self.peer_flag.store(true, Ordering::Release);
    }
}

/// The client's end of a session: sends requests and receives responses.
#[derive(Debug)]
pub struct ClientChannel<T> {
    transport: T,
    requests: Writer,
    responses: Reader,
}

impl<T: Transport> ClientChannel<T> {
    /// Creates the client's end of a new session. Both ends must use the same ring sizes. Returns
    /// [`Violation::Memory`] if the shared memory is too small for them.
    pub fn new(transport: T, sizes: RingSizes) -> Result<Self, Violation> {
        check_memory(&transport, sizes)?;
        let (requests, responses) = (Writer::new(sizes.requests()), Reader::new(sizes.responses()));
        Ok(Self { transport, requests, responses })
    }

    /// Returns the transport of the session.
    pub const fn transport(&self) -> &T {
        &self.transport
    }

    /// Sends a request with its data, and notifies the server.
    pub fn send_request(&mut self, id: RequestId, request: &Request, data: &[u8]) -> Result<(), PushError> {
        self.requests.push(self.transport.memory(), MessageHeader::from_request(id, request), data)?;
        self.transport.notify();
        Ok(())
    }

    /// Returns the next response without removing it. [`pop_response`](Self::pop_response) removes it.
    pub fn peek_response(&mut self) -> Result<Option<ReceivedResponse>, Violation> {
        let header = self.responses.peek(self.transport.memory())?;
        Ok(header.map(|header| ReceivedResponse {
            id: header.id(),
            response: header.to_response(),
            len: header.len as usize,
        }))
    }

    /// Copies the data of the current response to `out`, and returns the number of bytes copied.
    pub fn read_data(&self, out: &mut [u8]) -> usize {
        self.responses.read_data(self.transport.memory(), 0, out)
    }

    /// Removes the current response. Notifies the server if it waits for room.
    pub fn pop_response(&mut self) -> Result<(), Violation> {
        if self.responses.pop(self.transport.memory())? {
            self.transport.notify();
        }
        Ok(())
    }
}

/// A response as the client receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedResponse {
    /// ID of the request.
    pub id: RequestId,
    /// Result of the request.
    pub response: Result<Response, Error>,
    /// Length of the data that follows the response, in bytes.
    pub len: usize,
}

/// The server's end of a session: receives requests and sends responses.
/// [`notify_client`](Self::notify_client) sends one notification for all responses since the previous
/// call.
#[derive(Debug)]
pub struct ServerChannel<T> {
    transport: T,
    requests: Reader,
    responses: Writer,
    /// The client must be notified.
    notification_pending: bool,
}

/// A request as the server receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// ID of the request.
    pub id: RequestId,
    /// The decoded request, or the error that the server must return.
    pub request: Result<Request, Error>,
    /// Length of the data that follows the request, in bytes.
    pub len: usize,
}

impl<T: Transport> ServerChannel<T> {
    /// Creates the server's end of a new session. Both ends must use the same ring sizes. Returns
    /// [`Violation::Memory`] if the shared memory is too small for them.
    pub fn new(transport: T, sizes: RingSizes) -> Result<Self, Violation> {
        check_memory(&transport, sizes)?;
        let (requests, responses) = (Reader::new(sizes.requests()), Writer::new(sizes.responses()));
        Ok(Self { transport, requests, responses, notification_pending: false })
    }

    /// Returns the transport of the session.
    pub const fn transport(&self) -> &T {
        &self.transport
    }

    /// Returns the next request without removing it. [`pop_request`](Self::pop_request) removes it.
    pub fn peek_request(&mut self) -> Result<Option<ReceivedRequest>, Violation> {
        let header = self.requests.peek(self.transport.memory())?;
        Ok(header.map(|header| ReceivedRequest {
            id: header.id(),
            request: header.to_request(),
            len: header.len as usize,
        }))
    }

    /// Copies the data of the current request, from offset `skip`, to `out`. Returns the number of bytes
    /// copied.
    pub fn read_data(&self, skip: usize, out: &mut [u8]) -> usize {
        self.requests.read_data(self.transport.memory(), skip, out)
    }

    /// Removes the current request.
    pub fn pop_request(&mut self) -> Result<(), Violation> {
        self.notification_pending |= self.requests.pop(self.transport.memory())?;
        Ok(())
    }

    /// Returns the number of data bytes that the next response can carry, or `None` if that is less than
    /// `least`. In that case the client notifies the server when it has read a response.
    pub fn response_room(&mut self, least: usize) -> Result<Option<usize>, Violation> {
        let memory = self.transport.memory();
        let enough = |room: &usize| *room >= least;
        match self.responses.room(memory)?.filter(enough) {
            Some(room) => Ok(Some(room)),
            None => {
                self.responses.request_notification(memory)?;
                // The client may have read a response before it could see the flag: check again.
                Ok(self.responses.room(memory)?.filter(enough))
            }
        }
    }

    /// Returns whether `count` responses without data fit. If not, the client notifies the server when it has
    /// read a response.
    pub fn has_room_for_responses(&mut self, count: usize) -> Result<bool, Violation> {
        let others = count.saturating_sub(1).saturating_mul(const { HEADER_WORDS.saturating_mul(WORD) });
        Ok(self.response_room(others)?.is_some())
    }

    /// Sends the response to a request. The client is not notified before
    /// [`notify_client`](Self::notify_client).
    pub fn send_response(
        &mut self,
        id: RequestId,
        response: Result<Response, Error>,
        data: &[u8],
    ) -> Result<(), PushError> {
        self.responses.push(self.transport.memory(), MessageHeader::from_response(id, response), data)?;
        self.notification_pending = true;
        Ok(())
    }

    /// Notifies the client if responses were sent or requests removed since the previous call.
    pub fn notify_client(&mut self) {
        if core::mem::take(&mut self.notification_pending) {
            self.transport.notify();
        }
    }
}

fn check_memory(transport: &impl Transport, sizes: RingSizes) -> Result<(), Violation> {
    if transport.memory().len() < sizes.words() { Err(Violation::Memory) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalTransport, SocketId};

    #[test]
    fn a_request_is_received_and_its_response_returned() {
        let sizes = RingSizes::new(6, 6).unwrap();
        let (client_end, server_end) = LocalTransport::pair(sizes);
        let mut client = ClientChannel::new(client_end, sizes).unwrap();
        let mut server_channel = ServerChannel::new(server_end, sizes).unwrap();
        let request = Request::Send { socket: SocketId(7) };
        client.send_request(RequestId(3), &request, b"twelve bytes").unwrap();
        assert!(server_channel.transport().was_notified());
        assert_eq!(
            server_channel.peek_request(),
            Ok(Some(ReceivedRequest { id: RequestId(3), request: Ok(request), len: 12 }))
        );
        let mut data = [0; 5];
        assert_eq!((server_channel.read_data(7, &mut data), &data), (5, b"bytes"));
        server_channel.pop_request().unwrap();
        assert_eq!(server_channel.peek_request(), Ok(None));
        server_channel.notify_client();
        assert!(!client.transport().was_notified(), "nothing to read yet");
        server_channel.send_response(RequestId(3), Ok(Response::Sent { bytes: 12 }), &[]).unwrap();
        server_channel.notify_client();
        assert!(client.transport().was_notified());
        let response = Ok(Response::Sent { bytes: 12 });
        assert_eq!(client.peek_response(), Ok(Some(ReceivedResponse { id: RequestId(3), response, len: 0 })));
        client.pop_response().unwrap();
        assert_eq!(client.peek_response(), Ok(None));
    }

    #[test]
    fn memory_that_is_too_small_is_refused() {
        let (client_end, server_end) = LocalTransport::pair(RingSizes::new(6, 6).unwrap());
        let larger = RingSizes::new(6, 7).unwrap();
        assert_eq!(ClientChannel::new(client_end, larger).err(), Some(Violation::Memory));
        assert_eq!(ServerChannel::new(server_end, larger).err(), Some(Violation::Memory));
    }
}
