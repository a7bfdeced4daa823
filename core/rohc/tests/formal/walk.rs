//! The interpreter: walks the bits of a packet along the fields of a format.

use std::collections::{BTreeMap, BTreeSet};

use super::chains::{CONTROL, uncompressed, upper_headers};
use super::table::{
    Condition, Field, Format, Header, IP_ID_BEHAVIOR_RANDOM, IP_ID_BEHAVIOR_SEQUENTIAL,
    IP_ID_BEHAVIOR_SEQUENTIAL_SWAPPED, IP_ID_BEHAVIOR_ZERO, Method, PER_IP_HEADER, SDVL, is_compressed_only,
};

/// Values by name. A field that each IP header has of its own is called "ip0.tos_tc" and so on.
pub type Fields = BTreeMap<String, u128>;

/// Reads bits, most significant first.
#[derive(Clone, Debug)]
pub struct BitReader {
    octets: Vec<u8>,
    position: usize,
}

impl BitReader {
    pub fn new(octets: &[u8]) -> Self {
        Self { octets: octets.to_vec(), position: 0 }
    }

    /// The next `count` bits (at most 128) as a number.
    pub fn take(&mut self, count: u32) -> Result<u128, String> {
        let mut value = 0;
        for _ in 0..count {
            let octet = *self.octets.get(self.position / 8).ok_or("the packet is too short")?;
            value = value << 1 | u128::from(octet >> (7 - self.position % 8) & 1);
            self.position += 1;
        }
        Ok(value)
    }

    /// True, and the bits are consumed, if the next ones are `pattern`.
    pub fn take_if(&mut self, pattern: &str) -> bool {
        let mut trial = self.clone();
        let same = pattern.chars().all(|bit| trial.take(1) == Ok(u128::from(bit == '1')));
        if same {
            *self = trial;
        }
        same
    }

    /// How many octets were consumed; an error in the middle of an octet.
    pub fn octets_read(&self) -> Result<usize, String> {
        if self.position.is_multiple_of(8) {
            Ok(self.position / 8)
        } else {
            Err("the header ends in the middle of an octet".to_owned())
        }
    }
}

/// One packet in the course of decoding.
pub struct Walk {
    pub bits: BitReader,
    pub profile: u16,
    /// The values of the last packet of the context.
    pub old: Fields,
    /// The values of this packet. What no field sets stays as in `old`, which is the "static" encoding.
    pub new: Fields,
    /// The names (as in `new`) that this packet set.
    pub bound: BTreeSet<String>,
    /// The fields with an inferred_* method: their value is known once the MSN is.
    pub inferred: BTreeSet<&'static str>,
    /// The width of the header CRC.
    pub header_crc_width: u32,
    /// The IP header at hand, counted from the outermost, and the innermost one.
    pub level: usize,
    pub innermost: usize,
}

impl Walk {
    pub fn new(octets: &[u8], profile: u16, old: &Fields, innermost: usize) -> Self {
        let mut new = old.clone();
        new.retain(|name, _| !is_compressed_only(name));
        Self {
            bits: BitReader::new(octets),
            profile,
            old: old.clone(),
            new,
            bound: BTreeSet::new(),
            inferred: BTreeSet::new(),
            header_crc_width: 0,
            level: innermost,
            innermost,
        }
    }

    fn key(&self, name: &str) -> String {
        if PER_IP_HEADER.contains(&name) { format!("ip{}.{name}", self.level) } else { name.to_owned() }
    }

    /// The value of a field for this packet.
    pub fn get(&self, name: &str) -> Result<u128, String> {
        let key = self.key(name);
        self.new.get(&key).copied().ok_or_else(|| format!("{key} has no value"))
    }

    /// The value of a field in the context.
    pub fn reference(&self, name: &str) -> Result<u128, String> {
        let key = self.key(name);
        self.old.get(&key).copied().ok_or_else(|| format!("{key} has no value in the context"))
    }

    pub fn bind(&mut self, name: &str, value: u128) {
        let key = self.key(name);
        self.bound.insert(key.clone());
        self.new.insert(key, value);
    }

    pub fn is_bound(&self, name: &str) -> bool {
        self.bound.contains(&self.key(name))
    }

    fn holds(&self, condition: Condition) -> Result<bool, String> {
        let sequential = |walk: &Self| {
            let behavior = walk.get("ip_id_behavior_innermost")?;
            Ok::<_, String>(
                behavior == IP_ID_BEHAVIOR_SEQUENTIAL || behavior == IP_ID_BEHAVIOR_SEQUENTIAL_SWAPPED,
            )
        };
        Ok(match condition {
            Condition::Innermost => self.level == self.innermost,
            Condition::Outer => self.level != self.innermost,
            Condition::Profile(profile) => self.profile == profile,
            Condition::NotProfile(profile) => self.profile != profile,
            Condition::Sequential => sequential(self)?,
            Condition::NotSequential => !sequential(self)?,
            Condition::NonZero(name) => self.get(name)? != 0,
            Condition::Is(name, value) => self.get(name)? == value,
        })
    }

    /// The one format of a list whose conditions hold and whose first bits are those of the packet.
    pub fn choose(&self, formats: &'static [Format]) -> Result<&'static Format, String> {
        let mut chosen: Option<&Format> = None;
        for format in formats {
            let same_bits = match format.fields.first() {
                Some((_, Method::Bits(pattern))) => self.bits.clone().take_if(pattern),
                _ => true,
            };
            let mut usable = same_bits;
            for condition in format.when {
                usable = usable && self.holds(*condition)?;
            }
            if usable {
                if let Some(Format { name, .. }) = chosen {
                    return Err(format!("both {name} and {} fit", format.name));
                }
                chosen = Some(format);
            }
        }
        chosen
            .ok_or_else(|| format!("no format fits: {}", formats.first().map_or("none", |first| first.name)))
    }

    /// Chooses a format and walks its fields.
    pub fn walk_one_of(&mut self, formats: &'static [Format]) -> Result<&'static str, String> {
        let format = self.choose(formats)?;
        self.walk(format.fields).map_err(|reason| format!("{}: {reason}", format.name))?;
        Ok(format.name)
    }

    /// Walks a list of fields.
    pub fn walk(&mut self, fields: &'static [Field]) -> Result<(), String> {
        for (name, method) in fields {
            self.apply(name, *method).map_err(|reason| format!("{name}: {reason}"))?;
        }
        Ok(())
    }

    fn flag(&self, name: &str) -> Result<bool, String> {
        Ok(self.get(name)? == 1)
    }

    fn irregular(&mut self, name: &str, width: u32) -> Result<(), String> {
        let value = self.bits.take(width)?;
        self.bind(name, value);
        Ok(())
    }

    fn zeros(&mut self, width: u32) -> Result<(), String> {
        if self.bits.take(width)? == 0 { Ok(()) } else { Err("must be zero".to_owned()) }
    }

    /// lsb(k, p) of RFC 4997 section 4.11.5: the value in ref - p .. ref - p + 2^k - 1 with these low bits.
    fn lsb(&mut self, name: &str, k: u32, p: u128) -> Result<(), String> {
        let received = self.bits.take(k)?;
        let modulus = 1u128 << self.width(name)?;
        if received >= modulus {
            return Err(format!("{received} does not fit the field"));
        }
        let lowest = (self.reference(name)? + modulus - p % modulus) % modulus;
        let window = 1u128 << k;
        let step = (received + window - lowest % window) % window;
        self.bind(name, (lowest + step) % modulus);
        Ok(())
    }

    /// The width of a control field, or of a field of the headers that follow the IP headers.
    fn width(&self, name: &str) -> Result<u32, String> {
        let control = CONTROL.iter().find(|(field, _)| *field == name).map(|(_, width)| *width);
        let plain = || {
            let headers: &[Header] = upper_headers(self.profile);
            let mut fields = headers.iter().flat_map(|header| uncompressed(*header));
            fields.find(|(field, _, _)| *field == name).map(|(_, _, width)| *width)
        };
        control.or_else(plain).ok_or_else(|| format!("no width known for {name}"))
    }

    fn msn_lsb(&mut self, name: &str, k: u32) -> Result<(), String> {
        let p = match self.get("reorder_ratio")? {
            0 => 1,
            1 => (1 << k) / 4 - 1,
            2 => (1 << k) / 2 - 1,
            _ => (1 << k) * 3 / 4 - 1,
        };
        self.lsb(name, k, p)
    }

    fn scaled_ts_lsb(&mut self, k: u32) -> Result<(), String> {
        if self.get("time_stride")? != 0 {
            return Err("time_stride is not 0, and timer_based_lsb is not done here".to_owned());
        }
        self.lsb("ts_scaled", k, (1 << k) / 4 - 1)
    }

    /// Consumes the discriminator of a self-describing field. The answer is how many bits of lsb follow,
    /// or None if the whole field follows.
    fn sdvl(&mut self) -> Result<Option<u32>, String> {
        for (index, (pattern, k)) in SDVL.iter().enumerate() {
            if self.bits.take_if(pattern) {
                return Ok((index + 1 < SDVL.len()).then_some(*k));
            }
        }
        Err("no such discriminator".to_owned())
    }

    fn apply(&mut self, name: &'static str, method: Method) -> Result<(), String> {
        match method {
            Method::Bits(pattern) if self.bits.take_if(pattern) => {}
            Method::Bits(pattern) => return Err(format!("the bits are not {pattern}")),
            Method::Irregular(width) => self.irregular(name, width)?,
            Method::Zeros(width) => self.zeros(width)?,
            Method::Value(value) => self.bind(name, value),
            Method::IsNonZero(other) => {
                let value = u128::from(self.get(other)? != 0);
                self.bind(name, value);
            }
            Method::MsnLsb(k) => self.msn_lsb(name, k)?,
            Method::IpIdLsb(k) => self.lsb("ip_id_offset", k, (1 << k) / 4 - 1)?,
            Method::ScaledTsLsb(k) => self.scaled_ts_lsb(k)?,
            Method::HeaderCrc(width) => {
                self.header_crc_width = width;
                self.irregular(name, width)?;
            }
            Method::ControlCrc3 => self.irregular(name, 3)?,
            Method::InferredScaledField | Method::InferredSequentialIpId => {
                self.inferred.insert(name);
            }
            Method::FlEnc if self.bits.take(1)? == 1 => self.irregular(name, 20)?,
            Method::FlEnc => {
                self.zeros(4)?;
                self.bind(name, 0);
            }
            Method::IpIdEncDyn(behavior) => match self.get(behavior)? {
                IP_ID_BEHAVIOR_ZERO => self.bind(name, 0),
                _ => self.irregular(name, 16)?,
            },
            Method::IpIdEncIrreg(behavior) => match self.get(behavior)? {
                IP_ID_BEHAVIOR_RANDOM => self.irregular(name, 16)?,
                IP_ID_BEHAVIOR_ZERO => self.bind(name, 0),
                _ => {}
            },
            Method::IpIdSequentialVariable(indicator) => {
                match (self.get("ip_id_behavior_innermost")?, self.flag(indicator)?) {
                    (IP_ID_BEHAVIOR_RANDOM | IP_ID_BEHAVIOR_ZERO, _) => {}
                    (_, false) => self.apply(name, Method::IpIdLsb(8))?,
                    (_, true) => self.irregular(name, 16)?,
                }
            }
            Method::StaticOrIrreg(flag, width) => {
                if self.flag(flag)? {
                    self.irregular(name, width)?;
                }
            }
            Method::DontFragment if self.get("ip_version")? == 4 => self.irregular(name, 1)?,
            Method::DontFragment => self.zeros(1)?,
            Method::PtIrrOrStatic(flag) => {
                if self.flag(flag)? {
                    self.zeros(1)?;
                    self.irregular(name, 7)?;
                }
            }
            Method::SdvlSnLsb => match self.sdvl()? {
                Some(k) => self.msn_lsb(name, k)?,
                None => self.irregular(name, self.width(name)?)?,
            },
            Method::SdvlOrStatic(flag) => self.sdvl_or(name, flag, None)?,
            Method::SdvlOrDefault(flag, default) => self.sdvl_or(name, flag, Some(default))?,
            Method::VariableScaledTimestamp(tss, tsc) => match (self.flag(tss)?, self.flag(tsc)?) {
                (true, true) => return Err("tss and tsc are both set".to_owned()),
                (false, true) if self.get("ts_stride")? == 0 => return Err("ts_stride is 0".to_owned()),
                (false, true) => match self.sdvl()? {
                    Some(k) => self.scaled_ts_lsb(k)?,
                    None => self.irregular(name, 32)?,
                },
                _ => {}
            },
            Method::VariableUnscaledTimestamp(_, tsc) => {
                if !self.flag(tsc)? {
                    match self.sdvl()? {
                        Some(k) => self.lsb(name, k, (1 << k) / 4 - 1)?,
                        None => self.irregular(name, 32)?,
                    }
                }
            }
            Method::CsrcListDynchain(presence) => {
                if self.flag(presence)? {
                    self.csrc_list(true)?;
                } else {
                    self.bind("cc", 0);
                }
            }
            Method::CsrcListPresence(presence) => {
                if self.flag(presence)? {
                    self.csrc_list(false)?;
                }
            }
            Method::Flags(flag, fields) => {
                if self.flag(flag)? {
                    self.walk(fields)?;
                } else {
                    for (field, _) in fields.iter().filter(|(field, _)| field.ends_with("_indicator")) {
                        self.bind(field, 0);
                    }
                }
            }
        }
        Ok(())
    }

    /// sdvl_or_static (no default) and sdvl_or_default.
    fn sdvl_or(&mut self, name: &str, flag: &str, default: Option<u128>) -> Result<(), String> {
        if self.flag(flag)? {
            let width = self.sdvl()?.unwrap_or(32);
            self.irregular(name, width)?;
        } else if let Some(value) = default {
            self.bind(name, value);
        }
        Ok(())
    }

    /// list_csrc of section 6.6.13. The item table is the fields csrc_item0 to csrc_item15.
    fn csrc_list(&mut self, all_items_present: bool) -> Result<(), String> {
        self.zeros(3)?;
        let wide = self.bits.take(1)? == 1;
        let count = self.bits.take(4)?;
        let mut elements = Vec::new();
        for _ in 0..count {
            let item_follows = self.bits.take(1)? == 1;
            if wide {
                self.zeros(3)?;
            }
            elements.push((item_follows, self.bits.take(if wide { 4 } else { 3 })?));
        }
        if !wide && !count.is_multiple_of(2) {
            self.zeros(4)?;
        }
        for (position, (item_follows, index)) in elements.into_iter().enumerate() {
            let item = format!("csrc_item{index}");
            if item_follows {
                self.irregular(&item, 32)?;
            } else if all_items_present {
                return Err("an item of the list in the dynamic chain is not present".to_owned());
            }
            let value = self.get(&item)?;
            self.bind(&format!("csrc{position}"), value);
        }
        self.bind("cc", count);
        Ok(())
    }
}
