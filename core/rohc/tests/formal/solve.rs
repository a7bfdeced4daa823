//! The ENFORCE equations which tie the fields of one packet together.

use super::table::{ESP, IP_ID_BEHAVIOR_RANDOM, IP_ID_BEHAVIOR_SEQUENTIAL_SWAPPED, RTP};
use super::walk::Walk;

const MOD_16: u128 = 1 << 16;
const MOD_32: u128 = 1 << 32;

fn swap_octets(value: u128) -> u128 {
    value / 256 + value % 256 * 256
}

impl Walk {
    /// Completes the fields of the packet once all its bits are read.
    pub fn solve(&mut self) -> Result<(), String> {
        self.level = self.innermost;
        self.solve_msn()?;
        self.solve_ip_id()?;
        if self.profile == RTP {
            self.solve_timestamp()?;
        }
        Ok(())
    }

    /// RTP: msn == sequence_number. ESP: msn == sequence_number % 65536.
    fn solve_msn(&mut self) -> Result<(), String> {
        match self.profile {
            RTP if self.is_bound("msn") => {
                let msn = self.get("msn")?;
                self.bind("sequence_number", msn);
            }
            RTP | ESP => {
                let sequence_number = self.get("sequence_number")?;
                self.bind("msn", sequence_number % MOD_16);
            }
            _ => {}
        }
        if self.is_bound("msn") { Ok(()) } else { Err("the packet has no MSN".to_owned()) }
    }

    /// The difference in MSN to the reference, from -32768 to 32767.
    fn delta_msn(&self) -> Result<i128, String> {
        let delta = (self.get("msn")? + MOD_16 - self.reference("msn")?) % MOD_16;
        Ok(if delta < MOD_16 / 2 { delta as i128 } else { delta as i128 - MOD_16 as i128 })
    }

    /// ip_id_offset == ip_id - msn, with the octets of ip_id swapped first if the behavior says so.
    ///
    /// The RFC states the swap in ip_id_lsb and in inferred_sequential_ip_id. In ip_id_enc_dyn and in the
    /// long form of ip_id_sequential_variable it takes ip_id as it is for both behaviors, which would
    /// make the offset useless to ip_id_lsb; read as an oversight.
    fn solve_ip_id(&mut self) -> Result<(), String> {
        if self.get("ip_version")? == 6 {
            // UNCOMPRESSED v6: ENFORCE(ip_id_behavior_innermost.UVALUE == IP_ID_BEHAVIOR_RANDOM).
            let behavior = self.get("ip_id_behavior_innermost").unwrap_or(IP_ID_BEHAVIOR_RANDOM);
            if behavior != IP_ID_BEHAVIOR_RANDOM {
                return Err(format!("ip_id_behavior_innermost is {behavior} with IPv6"));
            }
            self.bind("ip_id_behavior_innermost", behavior);
            return Ok(());
        }
        let behavior = self.get("ip_id_behavior_innermost")?;
        if behavior > IP_ID_BEHAVIOR_SEQUENTIAL_SWAPPED {
            return Ok(());
        }
        let swap =
            |value| if behavior == IP_ID_BEHAVIOR_SEQUENTIAL_SWAPPED { swap_octets(value) } else { value };
        let msn = self.get("msn")?;
        if self.is_bound("ip_id_offset") {
            let in_order = (self.get("ip_id_offset")? + msn) % MOD_16;
            self.bind("ip_id", swap(in_order));
            return Ok(());
        }
        if self.inferred.contains("ip_id") {
            let in_order = swap(self.reference("ip_id")?) as i128 + self.delta_msn()?;
            self.bind("ip_id", swap(in_order.rem_euclid(MOD_16 as i128) as u128));
        }
        if !self.is_bound("ip_id") {
            return Err("the packet says nothing of ip_id, which is sequential".to_owned());
        }
        let offset = (swap(self.get("ip_id")?) + MOD_16 - msn) % MOD_16;
        self.bind("ip_id_offset", offset);
        Ok(())
    }

    /// inferred_scaled_field, and field_scaling(ts_stride, ts_scaled, timestamp, ts_offset).
    fn solve_timestamp(&mut self) -> Result<(), String> {
        let stride = self.get("ts_stride")?;
        if self.inferred.contains("timestamp") {
            let timestamp = self.reference("timestamp")? as i128 + self.delta_msn()? * stride as i128;
            self.bind("timestamp", timestamp.rem_euclid(MOD_32 as i128) as u128);
        } else if self.is_bound("ts_scaled") {
            let timestamp = self.get("ts_scaled")? * stride + self.reference("ts_offset")?;
            if timestamp >= MOD_32 {
                return Err(format!("timestamp: ts_scaled * ts_stride + ts_offset is {timestamp}"));
            }
            self.bind("timestamp", timestamp);
            return Ok(());
        }
        if !self.is_bound("timestamp") {
            return Err("the packet says nothing of the timestamp".to_owned());
        }
        let timestamp = self.get("timestamp")?;
        let (scaled, offset) = timestamp
            .checked_div(stride)
            .map_or((0, timestamp), |scaled| (scaled, timestamp - scaled * stride));
        self.bind("ts_scaled", scaled);
        self.bind("ts_offset", offset);
        Ok(())
    }
}
