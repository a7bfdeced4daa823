//! Traffic classes, in order of urgency.
//!
//! The classes are the treatment aggregates of RFC 5127, plus a class below them for lower-effort traffic
//! (RFC 8622). Network control shares the class of voice: both need little bandwidth and are urgent.

use core::fmt;

/// A traffic class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Voice, its signalling, and network control. Served before all other classes, up to a rate limit.
    LowLatency,
    /// Video and other traffic that is useless when late, at higher rates than voice.
    RealTime,
    /// Preferred traffic that adapts to the available bandwidth.
    Assured,
    /// All other traffic.
    Standard,
    /// Traffic that may be delayed arbitrarily: the lower effort of RFC 8622.
    Least,
}

impl Class {
    /// All classes, the most urgent first.
    pub const ALL: [Self; 5] = [Self::LowLatency, Self::RealTime, Self::Assured, Self::Standard, Self::Least];

    /// Index in [`Class::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Name in configuration files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LowLatency => "low-latency",
            Self::RealTime => "real-time",
            Self::Assured => "assured",
            Self::Standard => "standard",
            Self::Least => "least",
        }
    }

    /// Returns the class with this name.
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
    /// Value for [`Class::LowLatency`].
    pub low_latency: V,
    /// Value for [`Class::RealTime`].
    pub real_time: V,
    /// Value for [`Class::Assured`].
    pub assured: V,
    /// Value for [`Class::Standard`].
    pub standard: V,
    /// Value for [`Class::Least`].
    pub least: V,
}

impl<V> PerClass<V> {
    /// Calls `value` for each class.
    pub fn from_fn(mut value: impl FnMut(Class) -> V) -> Self {
        Self {
            low_latency: value(Class::LowLatency),
            real_time: value(Class::RealTime),
            assured: value(Class::Assured),
            standard: value(Class::Standard),
            least: value(Class::Least),
        }
    }

    /// Returns the value for `class`.
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

    /// Returns the value for `class`, mutably.
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
    fn indices_and_names_of_classes_are_unique() {
        let mut indices = PerClass::from_fn(Class::index);
        for (index, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), index);
            assert_eq!(*indices.get(class), index);
            assert_eq!(*indices.get_mut(class), index);
            assert_eq!(Class::from_name(class.name()), Some(class));
        }
        assert_eq!(Class::from_name("LOW-LATENCY"), None);
    }
}
