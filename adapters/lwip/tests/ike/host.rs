//! A host used through the C interface, as by a program in C.

use casemate_crypto::Rng;
use casemate_lwip::*;
use casemate_test_support::{TestRng, allocator};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

/// An event that a host reported, without the name of its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostEvent {
    pub(crate) kind: u32,
    pub(crate) child: String,
    pub(crate) reason: String,
}

pub(crate) struct IkeHost {
    host: *mut Host,
    /// Its random number generator.
    rng: *mut TestRng,
    pub(crate) now: u64,
    /// Peak memory of a single call.
    pub(crate) peak: usize,
    pub(crate) events: Vec<HostEvent>,
    number: u8,
}

unsafe extern "C" fn random(context: *mut c_void, out: *mut u8, bytes: usize) {
    // SAFETY: the context is the generator of the host, and `out` is valid for `bytes` bytes.
    let (rng, out) = unsafe { (&mut *context.cast::<TestRng>(), std::slice::from_raw_parts_mut(out, bytes)) };
    rng.secret(out);
}

pub(crate) fn address(number: u8) -> Address {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&[192, 0, 2, number]);
    Address { version: 4, bytes }
}

/// Parameters of a host's connection.
#[derive(Clone)]
pub(crate) struct TestConnection {
    pub(crate) name: &'static CStr,
    /// Local identity and the peer's; `None` for the default names.
    pub(crate) ids: Option<(CString, CString)>,
    pub(crate) auth: u32,
    pub(crate) proposals: Option<CString>,
    pub(crate) child_proposals: Option<CString>,
    pub(crate) private_key: Vec<u8>,
    pub(crate) peer_key: Vec<u8>,
    pub(crate) certificates: Vec<u8>,
    pub(crate) authorities: Vec<u8>,
    pub(crate) ppk_id: Option<CString>,
    pub(crate) ppk: Vec<u8>,
    pub(crate) ppk_required: u32,
    pub(crate) local_traffic: Option<CString>,
    pub(crate) remote_traffic: Option<CString>,
    pub(crate) dpd_seconds: u32,
}

impl TestConnection {
    pub(crate) fn shared() -> Self {
        Self {
            name: c"peer",
            ids: None,
            auth: SHARED_KEY,
            proposals: None,
            child_proposals: None,
            private_key: vec![],
            peer_key: vec![],
            certificates: vec![],
            authorities: vec![],
            ppk_id: None,
            ppk: vec![],
            ppk_required: 0,
            local_traffic: None,
            remote_traffic: None,
            dpd_seconds: 0,
        }
    }
}

pub(crate) const TABLES: Tables = Tables {
    sas: 16,
    policies: 32,
    flows: 16,
    replay_window: 64,
    arrivals: 0,
    reassemblies: 1,
    reassembly_bytes: 2_000,
    ike_sas: 4,
    ike_children: 2,
};

fn text(bytes: &[c_char]) -> String {
    // SAFETY: the library terminates its texts with NUL.
    unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_str().unwrap().into()
}

fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(null(), |text| text.as_ptr())
}

fn bytes(data: &[u8]) -> Bytes {
    Bytes { data: if data.is_empty() { null() } else { data.as_ptr() }, bytes: data.len() }
}

impl IkeHost {
    pub(crate) fn new(number: u8) -> Self {
        let rng = Box::into_raw(Box::new(TestRng::new(number.into())));
        let setup = Setup {
            tables: TABLES,
            mtu: 1_500,
            unmatched: DISCARD,
            random: Some(random),
            random_context: rng.cast(),
        };
        let mut host = null_mut();
        // SAFETY: the pointers refer to live values.
        assert_eq!(unsafe { casemate_create(&raw const setup, &raw mut host) }, 0);
        Self { host, rng, now: 5_000_000, peak: 0, events: vec![], number }
    }

    /// Calls the library and records the peak memory.
    pub(crate) fn call(&mut self, act: impl FnOnce(*mut Host, u64) -> i32) -> i32 {
        let measured = allocator::peak_memory(|| act(self.host, self.now));
        self.peak = self.peak.max(measured.peak_bytes);
        measured.result
    }

    pub(crate) fn add(&mut self, connection: &TestConnection) -> i32 {
        let id = |number: u8| CString::new(format!("host{number}.casemate.test")).unwrap();
        let usual = || (id(self.number), id(3 - self.number));
        let (own, peer) = connection.ids.clone().unwrap_or_else(usual);
        let child = ChildSpec {
            name: c"all".as_ptr(),
            proposals: pointer(&connection.child_proposals),
            local_traffic: pointer(&connection.local_traffic),
            remote_traffic: pointer(&connection.remote_traffic),
            protocol: ESP,
            mode: TUNNEL,
            start: 0,
            restart: 0,
            replay_window: 64,
            rekey_seconds: 0,
            rekey_bytes: 0,
        };
        let connection = ConnectionSpec {
            name: connection.name.as_ptr(),
            local: address(self.number),
            remote: address(3 - self.number),
            proposals: pointer(&connection.proposals),
            local_id: own.as_ptr(),
            remote_id: peer.as_ptr(),
            local_auth: connection.auth,
            remote_auth: connection.auth,
            shared_key: bytes(b"known to both, and long enough"),
            private_key: bytes(&connection.private_key),
            certificates: bytes(&connection.certificates),
            peer_key: bytes(&connection.peer_key),
            authorities: bytes(&connection.authorities),
            ppk_id: pointer(&connection.ppk_id),
            ppk: bytes(&connection.ppk),
            dpd_seconds: connection.dpd_seconds,
            rekey_seconds: 0,
            tries: 1,
            force_encap: 0,
            ppk_required: connection.ppk_required,
            children: &raw const child,
            child_count: 1,
        };
        // SAFETY: the pointers refer to live values.
        self.call(|host, now| unsafe { casemate_add_connection(host, &raw const connection, now) })
    }

    pub(crate) fn clock(&mut self, seconds: u64) {
        // SAFETY: the host exists.
        assert_eq!(self.call(|host, now| unsafe { casemate_ike_clock(host, seconds, now) }), 0);
    }

    pub(crate) fn initiate(&mut self, name: &CStr) -> i32 {
        // SAFETY: the host and the name exist.
        self.call(|host, now| unsafe { casemate_initiate(host, name.as_ptr(), now) })
    }

    pub(crate) fn rekey(&mut self, name: &CStr) -> i32 {
        // SAFETY: the host and the name exist.
        self.call(|host, now| unsafe { casemate_rekey(host, name.as_ptr(), now) })
    }

    pub(crate) fn terminate(&mut self, name: &CStr) -> i32 {
        // SAFETY: the host and the name exist.
        self.call(|host, now| unsafe { casemate_terminate(host, name.as_ptr(), now) })
    }

    pub(crate) fn remove(&mut self, name: &CStr) -> i32 {
        // SAFETY: the host and the name exist.
        self.call(|host, now| unsafe { casemate_remove_connection(host, name.as_ptr(), now) })
    }

    /// Reseeds the random number generator.
    pub(crate) fn reseed(&mut self, seed: u64) {
        // SAFETY: no other reference to the generator exists.
        unsafe { *self.rng = TestRng::new(seed) };
    }

    /// Lets time pass without a peer until `done` returns true.
    pub(crate) fn serve_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..1_000 {
            if done(self) {
                return;
            }
            while self.transmit().is_some() {}
            self.now = self.due().unwrap();
            self.serve();
        }
        panic!("not done: {:?}", self.counts());
    }

    pub(crate) fn serve(&mut self) {
        // SAFETY: the host exists.
        self.call(|host, now| unsafe { casemate_ike_serve(host, now) });
    }

    /// Returns the time at which the host must be served.
    pub(crate) fn due(&self) -> Option<u64> {
        let mut due = 0;
        // SAFETY: the pointers refer to live values.
        (unsafe { casemate_ike_due(self.host, &raw mut due) } == 0).then_some(due)
    }

    pub(crate) fn receive(&mut self, from: u8, port: u16, data: &[u8]) -> i32 {
        let mut data = data.to_vec();
        let datagram = Datagram {
            local: address(self.number),
            remote: address(from),
            local_port: port,
            remote_port: port,
            data: data.as_mut_ptr(),
            bytes: data.len(),
        };
        // SAFETY: the pointers refer to live values.
        self.call(|host, now| unsafe { casemate_ike_receive(host, &raw const datagram, now) })
    }

    /// Returns the next datagram: port and data.
    pub(crate) fn transmit(&mut self) -> Option<(u16, Vec<u8>)> {
        let empty = address(0);
        let mut datagram = Datagram {
            local: empty,
            remote: empty,
            local_port: 0,
            remote_port: 0,
            data: null_mut(),
            bytes: 0,
        };
        // SAFETY: the pointers refer to live values, and the data is valid until the next call.
        let data = unsafe {
            if casemate_ike_transmit(self.host, &raw mut datagram) != 0 {
                return None;
            }
            std::slice::from_raw_parts(datagram.data, datagram.bytes).to_vec()
        };
        Some((datagram.local_port, data))
    }

    pub(crate) fn look(&mut self) {
        let mut event = IkeEvent { kind: 0, connection: [0; 32], child: [0; 32], reason: [0; 96] };
        // SAFETY: the pointers refer to live values.
        while unsafe { casemate_ike_event(self.host, &raw mut event) } == 0 {
            let (child, reason) = (text(&event.child), text(&event.reason));
            self.events.push(HostEvent { kind: event.kind, child, reason });
        }
    }

    pub(crate) fn counts(&self) -> IkeCounts {
        let mut counts = IkeCounts::default();
        // SAFETY: the pointers refer to live values.
        assert_eq!(unsafe { casemate_ike_count(self.host, &raw mut counts) }, 0);
        counts
    }

    pub(crate) fn children(&self) -> usize {
        let mut count = 0;
        // SAFETY: the pointers refer to live values.
        assert_eq!(unsafe { casemate_child_sas(self.host, c"peer/all".as_ptr(), &raw mut count) }, 0);
        count
    }

    pub(crate) fn has_seen(&self, kind: u32) -> bool {
        self.events.iter().any(|event| event.kind == kind)
    }
}

impl Drop for IkeHost {
    fn drop(&mut self) {
        // SAFETY: the host came from casemate_create and is not used afterwards.
        unsafe { casemate_destroy(self.host) };
        // SAFETY: the pointer came from a box and is not used afterwards.
        drop(unsafe { Box::from_raw(self.rng) });
    }
}

/// Delivers messages in both directions until none is left.
pub(crate) fn exchange_messages(a: &mut IkeHost, b: &mut IkeHost) {
    for _ in 0..40 {
        let mut any = false;
        for _ in 0..2 {
            while let Some((port, data)) = a.transmit() {
                any = true;
                b.receive(a.number, port, &data);
            }
            std::mem::swap(a, b);
        }
        if !any {
            break;
        }
    }
    a.look();
    b.look();
}
