//! A host behind the C interface, as a program in C would have it.

use crate::heap;
use casemate_lwip::*;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

pub(crate) struct Speaker {
    host: *mut Host,
    /// What its random numbers come from.
    state: *mut u64,
    pub(crate) now: u64,
    /// What one call took at most, while it lasted.
    pub(crate) peak: usize,
    pub(crate) events: Vec<(u32, String, String)>,
    number: u8,
}

unsafe extern "C" fn random(context: *mut c_void, out: *mut u8, bytes: usize) {
    // SAFETY: the context is the state below, and `out` has room.
    let (state, out) = unsafe { (&mut *context.cast::<u64>(), std::slice::from_raw_parts_mut(out, bytes)) };
    for byte in out {
        // xorshift64
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *byte = (*state >> 24) as u8;
    }
}

pub(crate) fn address(number: u8) -> Address {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&[192, 0, 2, number]);
    Address { version: 4, bytes }
}

/// How two hosts know each other.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) name: &'static CStr,
    /// Our identity and the peer's, if not the usual ones.
    pub(crate) ids: Option<(CString, CString)>,
    pub(crate) auth: u32,
    pub(crate) proposals: Option<CString>,
    pub(crate) child_proposals: Option<CString>,
    pub(crate) private_key: Vec<u8>,
    pub(crate) peer_key: Vec<u8>,
    pub(crate) certificates: Vec<u8>,
    pub(crate) authorities: Vec<u8>,
    pub(crate) local_traffic: Option<CString>,
    pub(crate) remote_traffic: Option<CString>,
    pub(crate) dpd_seconds: u32,
}

impl Wanted {
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
    // SAFETY: the library ends its texts with 0.
    unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_str().unwrap().into()
}

fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(null(), |text| text.as_ptr())
}

fn bytes(data: &[u8]) -> Bytes {
    Bytes { data: if data.is_empty() { null() } else { data.as_ptr() }, bytes: data.len() }
}

impl Speaker {
    pub(crate) fn new(number: u8) -> Self {
        let state = Box::into_raw(Box::new(u64::from(number)));
        let setup = Setup {
            tables: TABLES,
            mtu: 1_500,
            unmatched: DISCARD,
            random: Some(random),
            random_context: state.cast(),
        };
        let mut host = null_mut();
        // SAFETY: pointers to values that live.
        assert_eq!(unsafe { casemate_create(&raw const setup, &raw mut host) }, 0);
        Self { host, state, now: 5_000_000, peak: 0, events: vec![], number }
    }

    /// Calls the library and takes note of what it took.
    pub(crate) fn call(&mut self, act: impl FnOnce(*mut Host, u64) -> i32) -> i32 {
        let (code, peak) = heap::peak(|| act(self.host, self.now));
        self.peak = self.peak.max(peak);
        code
    }

    pub(crate) fn add(&mut self, wanted: &Wanted) -> i32 {
        let id = |number: u8| CString::new(format!("host{number}.casemate.test")).unwrap();
        let usual = || (id(self.number), id(3 - self.number));
        let (own, peer) = wanted.ids.clone().unwrap_or_else(usual);
        let child = ChildSpec {
            name: c"all".as_ptr(),
            proposals: pointer(&wanted.child_proposals),
            local_traffic: pointer(&wanted.local_traffic),
            remote_traffic: pointer(&wanted.remote_traffic),
            protocol: ESP,
            mode: TUNNEL,
            start: 0,
            restart: 0,
            replay_window: 64,
            rekey_seconds: 0,
            rekey_bytes: 0,
        };
        let connection = ConnectionSpec {
            name: wanted.name.as_ptr(),
            local: address(self.number),
            remote: address(3 - self.number),
            proposals: pointer(&wanted.proposals),
            local_id: own.as_ptr(),
            remote_id: peer.as_ptr(),
            local_auth: wanted.auth,
            remote_auth: wanted.auth,
            shared_key: bytes(b"known to both, and long enough"),
            private_key: bytes(&wanted.private_key),
            certificates: bytes(&wanted.certificates),
            peer_key: bytes(&wanted.peer_key),
            authorities: bytes(&wanted.authorities),
            dpd_seconds: wanted.dpd_seconds,
            rekey_seconds: 0,
            tries: 1,
            force_encap: 0,
            children: &raw const child,
            child_count: 1,
        };
        // SAFETY: pointers to values that live.
        self.call(|host, now| unsafe { casemate_add_connection(host, &raw const connection, now) })
    }

    pub(crate) fn clock(&mut self, seconds: u64) {
        // SAFETY: the host lives.
        assert_eq!(self.call(|host, now| unsafe { casemate_ike_clock(host, seconds, now) }), 0);
    }

    pub(crate) fn initiate(&mut self, name: &CStr) -> i32 {
        // SAFETY: the host and the name live.
        self.call(|host, now| unsafe { casemate_initiate(host, name.as_ptr(), now) })
    }

    pub(crate) fn rekey(&mut self, name: &CStr) -> i32 {
        // SAFETY: the host and the name live.
        self.call(|host, now| unsafe { casemate_rekey(host, name.as_ptr(), now) })
    }

    pub(crate) fn terminate(&mut self, name: &CStr) -> i32 {
        // SAFETY: the host and the name live.
        self.call(|host, now| unsafe { casemate_terminate(host, name.as_ptr(), now) })
    }

    pub(crate) fn remove(&mut self, name: &CStr) -> i32 {
        // SAFETY: the host and the name live.
        self.call(|host, now| unsafe { casemate_remove_connection(host, name.as_ptr(), now) })
    }

    /// Other random numbers from now on.
    pub(crate) fn mix(&mut self, number: u64) {
        // SAFETY: nobody else looks at it meanwhile.
        unsafe { *self.state = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(number + 1) };
    }

    /// Lets time pass, with nobody to answer, until `done` says so.
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
        // SAFETY: the host lives.
        self.call(|host, now| unsafe { casemate_ike_serve(host, now) });
    }

    /// When it wants to be served.
    pub(crate) fn due(&self) -> Option<u64> {
        let mut due = 0;
        // SAFETY: pointers to values that live.
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
        // SAFETY: pointers to values that live.
        self.call(|host, now| unsafe { casemate_ike_receive(host, &raw const datagram, now) })
    }

    /// What it sends: port and data.
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
        // SAFETY: pointers to values that live, and data that is good until the next call.
        let data = unsafe {
            if casemate_ike_transmit(self.host, &raw mut datagram) != 0 {
                return None;
            }
            std::slice::from_raw_parts(datagram.data, datagram.bytes).to_vec()
        };
        Some((datagram.local_port, data))
    }

    pub(crate) fn look(&mut self) {
        let mut event = Told { kind: 0, connection: [0; 32], child: [0; 32], reason: [0; 96] };
        // SAFETY: pointers to values that live.
        while unsafe { casemate_ike_event(self.host, &raw mut event) } == 0 {
            self.events.push((event.kind, text(&event.child), text(&event.reason)));
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        // SAFETY: pointers to values that live.
        assert_eq!(unsafe { casemate_ike_count(self.host, &raw mut counts) }, 0);
        counts
    }

    pub(crate) fn children(&self) -> usize {
        let mut count = 0;
        // SAFETY: pointers to values that live.
        assert_eq!(unsafe { casemate_child_sas(self.host, c"peer/all".as_ptr(), &raw mut count) }, 0);
        count
    }

    pub(crate) fn has_seen(&self, kind: u32) -> bool {
        self.events.iter().any(|(seen, ..)| *seen == kind)
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        // SAFETY: it came from casemate_create, and is used no more.
        unsafe { casemate_destroy(self.host) };
        // SAFETY: it came from a box, and nobody has it any more.
        drop(unsafe { Box::from_raw(self.state) });
    }
}

/// Hands messages to and fro until there are none.
pub(crate) fn talk(a: &mut Speaker, b: &mut Speaker) {
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
