//! The classes of packets: who is served before whom.
//!
//! They are the treatment aggregates of RFC 5127, and one below them for what may wait for everything else (RFC 8622). Network
//! control is with the real time of voice: both are little and urgent.

use core::fmt;

/// A class of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Voice, its signalling, and network control: served before all others, up to a cap.
    LowLatency,
    /// Video and what else is of use only at once, in larger amounts than voice.
    RealTime,
    /// Traffic that somebody gave a preference to, and that adapts to what there is.
    Assured,
    /// All other traffic.
    Standard,
    /// What may be late: the lower effort of RFC 8622.
    Least,
}

impl Class {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 5] = [Self::LowLatency, Self::RealTime, Self::Assured, Self::Standard, Self::Least];

    /// Its place in [`Class::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name in files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LowLatency => "low-latency",
            Self::RealTime => "real-time",
            Self::Assured => "assured",
            Self::Standard => "standard",
            Self::Least => "least",
        }
    }

    /// The class of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value for each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerClass<V> {
    /// Of [`Class::LowLatency`].
    pub low_latency: V,
    /// Of [`Class::RealTime`].
    pub real_time: V,
    /// Of [`Class::Assured`].
    pub assured: V,
    /// Of [`Class::Standard`].
    pub standard: V,
    /// Of [`Class::Least`].
    pub least: V,
}

impl<V> PerClass<V> {
    /// What `of` answers for each class.
    pub fn from_fn(mut of: impl FnMut(Class) -> V) -> Self {
        Self {
            low_latency: of(Class::LowLatency),
            real_time: of(Class::RealTime),
            assured: of(Class::Assured),
            standard: of(Class::Standard),
            least: of(Class::Least),
        }
    }

    /// The value of `class`.
    #[inline]
    pub const fn get(&self, class: Class) -> &V {
        match class {
            Class::LowLatency => &self.low_latency,
            Class::RealTime => &self.real_time,
            Class::Assured => &self.assured,
            Class::Standard => &self.standard,
            Class::Least => &self.least,
        }
    }

    /// The value of `class`, to be changed.
    #[inline]
    pub const fn get_mut(&mut self, class: Class) -> &mut V {
        match class {
            Class::LowLatency => &mut self.low_latency,
            Class::RealTime => &mut self.real_time,
            Class::Assured => &mut self.assured,
            Class::Standard => &mut self.standard,
            Class::Least => &mut self.least,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_one_place_and_one_name() {
        let mut places = PerClass::from_fn(Class::index);
        for (at, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), at);
            assert_eq!(*places.get(class), at);
            assert_eq!(*places.get_mut(class), at);
            assert_eq!(Class::from_name(class.name()), Some(class));
        }
        assert_eq!(Class::from_name("LOW-LATENCY"), None);
    }
}
