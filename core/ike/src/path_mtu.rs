//! Search for the path MTU with probes (RFC 8899 section 5, in a simple form).
//!
//! Every probe has one size, and it either arrives or is lost. The first one has the size of the link's MTU,
//! so a path without a narrower link costs one probe. If it is lost, the search bisects a table of usual
//! MTUs. A limit applies only once a smaller probe has arrived: some path or peer may drop probes of any
//! size. The search is repeated every ten minutes, and begins with the size that is in use. The module knows
//! neither messages nor timers: `state/path_probe.rs` sends the probes.

use casemate_sa::Instant;
use core::time::Duration;

/// Time from the end of a search to the next one (RFC 8899 section 5.1.1: PMTU_RAISE_TIMER).
const RAISE: Duration = Duration::from_secs(600);
/// Shortest time from the end of a search to the next one, if something suggests that the path has changed.
const SUSPICION_PAUSE: Duration = Duration::from_secs(60);
/// Time to the next probe if the last one showed nothing. Doubles each time, up to [`RAISE`].
const RETRY: Duration = Duration::from_secs(10);
/// Smallest MTU of an IPv6 link (RFC 8200 section 5). Nearly every path takes packets of this size.
const BASE: u16 = 1_280;
/// Every IPv4 host accepts packets of this size (RFC 791 section 3.1).
const V4_FLOOR: u16 = 576;

/// Sizes to search: MTUs of usual links and tunnels.
const SIZES: [u16; 23] = [
    576, 800, 1_006, 1_200, 1_280, 1_320, 1_360, 1_380, 1_400, 1_420, 1_430, 1_440, 1_450, 1_460, 1_472,
    1_480, 1_492, 1_500, 2_002, 4_352, 8_166, 9_000, 17_914,
];

/// State of the search on one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathSearch {
    /// Time of the next probe; `None` if the path is not probed.
    next_at: Option<Instant>,
    /// MTU of the link; 0 before the first search.
    link: u16,
    floor: u16,
    /// The path MTU of the last search; `None` if it was that of the link.
    expected: Option<u16>,
    /// Largest size that has arrived in this search.
    passed: Option<u16>,
    /// Smallest size that was lost in this search.
    lost: Option<u16>,
    is_complete: bool,
    ended_at: Instant,
    limit: Option<u16>,
    /// Number of probes in a row that showed nothing.
    inconclusive: u8,
}

impl PathSearch {
    /// No search.
    pub(crate) const OFF: Self = Self {
        next_at: None,
        link: 0,
        floor: V4_FLOOR,
        expected: None,
        passed: None,
        lost: None,
        is_complete: true,
        ended_at: Instant::ZERO,
        limit: None,
        inconclusive: 0,
    };

    /// A search that begins at `at`, on a path that has not been searched before.
    pub(crate) const fn starting_at(at: Instant) -> Self {
        Self { next_at: Some(at), ..Self::OFF }
    }

    /// A search that begins at `at`, on a path that an earlier owner of the IKE SA has searched with this
    /// result.
    #[cfg(feature = "records")]
    pub(crate) fn continued(limit: Option<u16>, at: Instant, now: Instant) -> Self {
        Self { limit, ended_at: now, ..Self::starting_at(at) }
    }

    /// The result of the last search: the path MTU in bytes, if it is below that of the link. `None` before
    /// the first search has ended.
    #[cfg(feature = "records")]
    pub(crate) fn found(&self) -> Option<Option<u16>> {
        (self.ended_at > Instant::ZERO).then_some(self.limit)
    }

    /// Time of the next probe; `None` if the path is not probed.
    pub(crate) const fn next_at(&self) -> Option<Instant> {
        self.next_at
    }

    /// The path MTU in bytes, if it is below the MTU of the link as far as is known.
    pub(crate) const fn limit(&self) -> Option<u16> {
        self.limit
    }

    /// MTU of the link in bytes.
    pub(crate) const fn link(&self) -> u16 {
        self.link
    }

    /// Forgets the path, because an end of it has another address, and searches at `now`.
    pub(crate) fn restart(&mut self, now: Instant) {
        if self.next_at.is_some() {
            *self = Self::starting_at(now);
        }
    }

    /// Searches again soon: something suggests that the path has become narrower.
    pub(crate) fn suspect(&mut self, now: Instant) {
        if self.is_complete && now.since(self.ended_at) >= SUSPICION_PAUSE {
            self.next_at = self.next_at.map(|at| at.min(now));
        }
    }

    /// Begins a search if none is in progress. `link` is the MTU of the link; without it there is nothing to
    /// search.
    pub(crate) fn begin(&mut self, link: Option<usize>, is_v4: bool, now: Instant) {
        if !self.is_complete {
            return;
        }
        let Some(link) = link.map(|link| u16::try_from(link).unwrap_or(u16::MAX)) else {
            self.next_at = Some(now.after(RAISE));
            return;
        };
        self.floor = if is_v4 { V4_FLOOR } else { BASE };
        (self.link, self.passed, self.lost, self.is_complete) = (link, None, None, false);
        self.limit = self.limit.filter(|limit| *limit < link);
        self.expected = self.limit;
    }

    /// Postpones the next search if the last one is complete and no packet has been sent since: `sent` is the
    /// time of the last one. Then no packet can have been too long, and nothing needs to reach the peer.
    pub(crate) fn postpone_if_unused(&mut self, sent: Option<Instant>, now: Instant) -> bool {
        let is_unused = self.is_complete && self.link != 0 && sent <= Some(self.ended_at);
        if is_unused {
            self.next_at = self.next_at.map(|_| now.after(RAISE));
        }
        is_unused
    }

    /// The size of the next probe. Ends the search and returns `None` if there is none.
    pub(crate) fn next_size(&mut self, now: Instant) -> Option<u16> {
        if self.is_complete {
            return None;
        }
        let size = self.untested();
        if size.is_none() {
            (self.is_complete, self.ended_at) = (true, now);
            self.next_at = self.next_at.map(|_| now.after(RAISE));
        }
        size
    }

    /// Whether no size is left to test.
    pub(crate) fn is_finished(&self) -> bool {
        self.untested().is_none()
    }

    /// Whether the path MTU is another one than after the last search.
    pub(crate) fn has_changed(&self) -> bool {
        self.limit != self.expected
    }

    fn untested(&self) -> Option<u16> {
        let low = self.passed.unwrap_or(self.floor.saturating_sub(1));
        let Some(lost) = self.lost else {
            let in_use = self.expected.filter(|_| self.passed.is_none()).unwrap_or(self.link);
            return [in_use, self.link].into_iter().find(|size| *size > low.max(self.floor));
        };
        let is_open = |size: &u16| *size > low && *size < lost;
        if self.passed.is_none() && is_open(&BASE) {
            return Some(BASE);
        }
        let open = || SIZES.into_iter().filter(is_open);
        open().nth(open().count() / 2)
    }

    /// A probe of this size has arrived.
    pub(crate) fn probe_passed(&mut self, size: u16, now: Instant) {
        self.inconclusive = 0;
        self.passed = self.passed.max(Some(size));
        self.limit = if size >= self.link { None } else { self.passed.max(self.limit_below_lost()) };
        self.next_at = self.next_at.map(|_| now);
    }

    /// Probes of this size do not arrive, and shorter packets do.
    pub(crate) fn probe_lost(&mut self, size: u16, now: Instant) {
        self.inconclusive = 0;
        let lost = self.lost.map_or(size, |lost| lost.min(size));
        self.lost = Some(lost);
        if self.passed.is_some() {
            self.limit = self.limit_below_lost().or(self.passed);
        }
        self.next_at = self.next_at.map(|_| now);
    }

    /// A probe showed nothing: shorter packets did not arrive either, or another request came between.
    pub(crate) fn probe_inconclusive(&mut self, now: Instant) {
        let wait = RETRY.saturating_mul(1_u32.checked_shl(self.inconclusive.into()).unwrap_or(u32::MAX));
        self.inconclusive = self.inconclusive.saturating_add(1);
        self.next_at = self.next_at.map(|_| now.after(wait.min(RAISE)));
    }

    /// The path MTU of earlier probes, if this search does not contradict it.
    fn limit_below_lost(&self) -> Option<u16> {
        self.limit.filter(|limit| self.lost.is_some_and(|lost| *limit < lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const NOW: Instant = Instant::from_secs(100);

    /// Searches a path that takes packets of up to `path` bytes. Returns the sizes of the probes.
    fn search(search: &mut PathSearch, is_v4: bool, link: usize, path: u16) -> Vec<u16> {
        let before = search.limit();
        search.begin(Some(link), is_v4, NOW);
        let mut probes = Vec::new();
        while let Some(size) = search.next_size(NOW) {
            probes.push(size);
            if size <= path {
                search.probe_passed(size, NOW);
            } else {
                search.probe_lost(size, NOW);
            }
            let limit = search.limit();
            assert!(limit == before || limit.is_none_or(|limit| limit <= path), "{limit:?} after {probes:?}");
            assert!(probes.len() <= 8, "{probes:?}");
        }
        probes
    }

    #[test]
    fn a_path_as_wide_as_the_link_takes_one_probe() {
        for link in [1_281, 1_400, 1_500, 9_000, 65_535] {
            let mut state = PathSearch::starting_at(NOW);
            assert_eq!(search(&mut state, true, link, u16::MAX), [link as u16]);
            assert_eq!((state.limit(), state.next_at()), (None, Some(NOW.after(RAISE))));
        }
    }

    #[test]
    fn the_result_is_the_largest_size_of_the_table_that_passes() {
        for (is_v4, link) in [(true, 1_500), (false, 1_500), (true, 9_000)] {
            let floor = if is_v4 { V4_FLOOR } else { BASE };
            for path in floor..link {
                let mut state = PathSearch::starting_at(NOW);
                let probes = search(&mut state, is_v4, link.into(), path);
                let expected = SIZES.into_iter().filter(|size| *size <= path).max();
                assert_eq!(state.limit(), expected, "path of {path}: {probes:?}");
            }
        }
    }

    #[test]
    fn a_path_that_drops_probes_of_any_size_gets_no_limit() {
        for is_v4 in [true, false] {
            let mut state = PathSearch::starting_at(NOW);
            search(&mut state, is_v4, 1_500, 0);
            assert_eq!((state.limit(), state.next_at()), (None, Some(NOW.after(RAISE))));
        }
    }

    #[test]
    fn links_of_the_minimum_mtu_are_not_probed() {
        let mut state = PathSearch::starting_at(NOW);
        assert_eq!(search(&mut state, false, 1_280, 1_280), [0; 0]);
        assert_eq!(search(&mut state, true, 500, 500), [0; 0]);
        assert_eq!((state.limit(), state.next_at()), (None, Some(NOW.after(RAISE))));
    }

    #[test]
    fn a_later_search_finds_a_wider_and_a_narrower_path() {
        let mut state = PathSearch::starting_at(NOW);
        search(&mut state, true, 1_500, 1_400);
        assert_eq!(state.limit(), Some(1_400));
        let again = search(&mut state, true, 1_500, 1_400);
        assert_eq!((&again[..2], state.limit()), (&[1_400, 1_500][..], Some(1_400)));
        search(&mut state, true, 1_500, 1_460);
        assert_eq!(state.limit(), Some(1_460));
        search(&mut state, true, 1_500, 1_300);
        assert_eq!(state.limit(), Some(1_280));
        assert_eq!(search(&mut state, true, 1_500, 1_500), [1_280, 1_500]);
        assert_eq!(state.limit(), None);
    }

    #[test]
    fn suspicion_begins_a_search_at_most_once_a_minute() {
        let mut state = PathSearch::starting_at(NOW);
        search(&mut state, true, 1_500, 1_500);
        state.suspect(NOW.after(SUSPICION_PAUSE / 2));
        assert_eq!(state.next_at(), Some(NOW.after(RAISE)));
        state.suspect(NOW.after(SUSPICION_PAUSE));
        assert_eq!(state.next_at(), Some(NOW.after(SUSPICION_PAUSE)));
        let mut off = PathSearch::OFF;
        off.suspect(NOW.after(RAISE));
        off.restart(NOW);
        assert_eq!(off, PathSearch::OFF);
    }

    #[test]
    fn an_inconclusive_probe_is_repeated_later_and_changes_nothing() {
        let mut state = PathSearch::starting_at(NOW);
        state.begin(Some(1_500), true, NOW);
        assert_eq!(state.next_size(NOW), Some(1_500));
        state.probe_inconclusive(NOW);
        assert_eq!((state.limit(), state.next_at()), (None, Some(NOW.after(RETRY))));
        assert_eq!(state.next_size(NOW), Some(1_500));
        for wait in [20, 40, 80, 160, 320, 600, 600] {
            state.probe_inconclusive(NOW);
            assert_eq!(state.next_at(), Some(NOW.after(Duration::from_secs(wait))));
        }
        state.probe_passed(1_500, NOW);
        state.probe_inconclusive(NOW);
        assert_eq!(state.next_at(), Some(NOW.after(RETRY)));
    }

    #[test]
    fn an_unused_path_is_searched_once() {
        let mut state = PathSearch::starting_at(NOW);
        assert!(!state.postpone_if_unused(None, NOW));
        search(&mut state, true, 1_500, 1_500);
        let later = NOW.after(RAISE);
        for sent in [None, Some(NOW)] {
            assert!(state.postpone_if_unused(sent, later));
            assert_eq!(state.next_at(), Some(later.after(RAISE)));
        }
        assert!(!state.postpone_if_unused(Some(later), later));
    }

    #[test]
    fn a_new_address_forgets_the_path() {
        let mut state = PathSearch::starting_at(NOW);
        search(&mut state, true, 1_500, 1_400);
        state.restart(NOW);
        assert_eq!((state.limit(), state.next_at()), (None, Some(NOW)));
    }
}
