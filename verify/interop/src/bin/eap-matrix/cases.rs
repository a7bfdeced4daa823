//! The cases.

use crate::party::{CLIENT, IMSI, PASSWORD, Party, SERVER, USER};
use crate::{eapol, hostapd};
use casemate_eap::{Authenticated, Method};

/// The program on the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    EapolTest,
    Hostapd,
}

/// What a case has shown.
pub(crate) struct Outcome {
    pub(crate) summary: String,
}

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) foreign: Foreign,
    method: Method,
    /// Lines of the configuration of eapol_test, or the users of hostapd.
    configuration: String,
    identity: String,
    /// Whether the USIM of our peer has accepted the vector already.
    is_used: bool,
    /// Fault of our side; `None` if both succeed.
    fault: Option<&'static str>,
}

impl Case {
    fn eapol(name: &str, method: Method, lines: &str) -> Self {
        Self {
            name: format!("eapol_test/{name}"),
            foreign: Foreign::EapolTest,
            method,
            configuration: lines.into(),
            identity: String::new(),
            is_used: false,
            fault: None,
        }
    }

    fn hostapd(name: &str, method: Method, identity: &str, users: &str) -> Self {
        Self {
            name: format!("hostapd/{name}"),
            foreign: Foreign::Hostapd,
            identity: identity.into(),
            ..Self::eapol("", method, users)
        }
    }

    fn refused(self, fault: &'static str) -> Self {
        Self { fault: Some(fault), ..self }
    }

    pub(crate) fn run(&self) -> Result<Outcome, String> {
        let (ours, theirs) = match self.foreign {
            Foreign::EapolTest => eapol::run(self.method, &self.configuration, &Party::new(SERVER, CLIENT))?,
            Foreign::Hostapd => {
                // hostapd accepts no CA as a client.
                let party = Party::new(SERVER, SERVER);
                let party = if self.is_used { party.with_used_vector() } else { party };
                hostapd::run(self.method, &self.identity, &self.configuration, &party)?
            }
        };
        self.compare(ours, theirs)
    }

    fn compare(&self, ours: Result<Authenticated, String>, theirs: bool) -> Result<Outcome, String> {
        match (ours, theirs, self.fault) {
            (Ok(done), true, None) if done.method == Some(self.method) => {
                let identity = String::from_utf8_lossy(&done.identity).into_owned();
                let key = if done.msk.is_some() { "equal keys" } else { "no keys" };
                Ok(Outcome { summary: format!("{identity}, {key}") })
            }
            (Err(fault), false, Some(expected)) if fault == expected => Ok(Outcome { summary: fault }),
            (ours, theirs, expected) => {
                let ours = ours.map(|done| done.method);
                Err(format!("our side: {ours:?}, the other side: {theirs}, expected: {expected:?}"))
            }
        }
    }
}

pub(crate) fn all() -> Vec<Case> {
    [with_eapol_test(), with_hostapd()].into_iter().flatten().collect()
}

fn with_eapol_test() -> Vec<Case> {
    let password =
        |eap: &str, more: &str| format!("eap={eap}\nidentity=\"{USER}\"\npassword=\"{PASSWORD}\"\n{more}");
    let in_tunnel =
        |eap: &str, inner: &str| password(eap, &format!("anonymous_identity=\"anonymous\"\n{inner}"));
    let peap = |inner: &str, binding: u8| {
        let phase1 = format!("phase1=\"peapver=0 crypto_binding={binding}\"\nphase2=\"auth={inner}\"");
        in_tunnel("PEAP", &phase1)
    };
    let usim = |eap: &str, front: char, more: &str| format!("eap={eap}\nidentity=\"{front}{IMSI}\"\n{more}");
    let indicated = "phase1=\"result_ind=1\"";
    let certificate = "client_cert=\"DIR/client.pem\"\nprivate_key=\"DIR/client.key\"";
    let wrong = |lines: String| lines.replace(PASSWORD, "guess");
    vec![
        Case::eapol("md5", Method::Md5, &password("MD5", "")),
        Case::eapol("gtc", Method::Gtc, &password("GTC", "")),
        Case::eapol("mschapv2", Method::MsChapV2, &password("MSCHAPV2", "")),
        Case::eapol("mschapv2/refused/password", Method::MsChapV2, &wrong(password("MSCHAPV2", "")))
            .refused("eap-wrong-password"),
        Case::eapol("tls", Method::Tls, &format!("eap=TLS\nidentity=\"{USER}\"\n{certificate}")),
        Case::eapol("ttls/mschapv2", Method::Ttls, &in_tunnel("TTLS", "phase2=\"autheap=MSCHAPV2\"")),
        Case::eapol("ttls/md5", Method::Ttls, &in_tunnel("TTLS", "phase2=\"autheap=MD5\"")),
        Case::eapol("ttls/gtc", Method::Ttls, &in_tunnel("TTLS", "phase2=\"autheap=GTC\"")),
        Case::eapol("peap/mschapv2", Method::Peap, &peap("MSCHAPV2", 2)),
        Case::eapol("peap/md5", Method::Peap, &peap("MD5", 0)),
        Case::eapol("peap/gtc", Method::Peap, &peap("GTC", 0)),
        Case::eapol("peap/refused/password", Method::Peap, &wrong(peap("MSCHAPV2", 1)))
            .refused("eap-wrong-password"),
        Case::eapol("peap/refused/no-binding", Method::Peap, &peap("MSCHAPV2", 0)).refused("eap-no-binding"),
        Case::eapol("aka", Method::Aka, &usim("AKA", '0', "")),
        Case::eapol("aka/result-indication", Method::Aka, &usim("AKA", '0', indicated)),
        Case::eapol("aka-prime", Method::AkaPrime, &usim("AKA'", '6', "")),
        Case::eapol("aka-prime/result-indication", Method::AkaPrime, &usim("AKA'", '6', indicated)),
        Case::eapol(
            "aka/refused/unknown",
            Method::Aka,
            &usim("AKA", '0', "").replace(IMSI, "232019999999999"),
        )
        .refused("eap-no-password"),
    ]
}

fn with_hostapd() -> Vec<Case> {
    let user = |method: &str| format!("\"{USER}\" {method} \"{PASSWORD}\"\n");
    let tunnel =
        |outer: &str, inner: &str| format!("\"{USER}\" {outer}\n\"{USER}\" {inner} \"{PASSWORD}\" [2]\n");
    let wrong = |users: String| users.replace(PASSWORD, "guess");
    let (aka, prime) = (format!("0{IMSI}"), format!("6{IMSI}"));
    let used = |case: Case| Case { is_used: true, ..case };
    vec![
        Case::hostapd("md5", Method::Md5, USER, &user("MD5")),
        Case::hostapd("gtc", Method::Gtc, USER, &user("GTC")),
        Case::hostapd("mschapv2", Method::MsChapV2, USER, &user("MSCHAPV2")),
        Case::hostapd("mschapv2/refused/password", Method::MsChapV2, USER, &wrong(user("MSCHAPV2")))
            .refused("eap-refused"),
        Case::hostapd("tls", Method::Tls, USER, &format!("\"{USER}\" TLS\n")),
        Case::hostapd("ttls/mschapv2", Method::Ttls, USER, &tunnel("TTLS", "MSCHAPV2")),
        Case::hostapd("ttls/md5", Method::Ttls, USER, &tunnel("TTLS", "MD5")),
        Case::hostapd("ttls/gtc", Method::Ttls, USER, &tunnel("TTLS", "GTC")),
        Case::hostapd("peap/mschapv2", Method::Peap, USER, &tunnel("PEAP", "MSCHAPV2")),
        Case::hostapd("peap/md5", Method::Peap, USER, &tunnel("PEAP", "MD5")),
        Case::hostapd("peap/gtc", Method::Peap, USER, &tunnel("PEAP", "GTC")),
        Case::hostapd("peap/refused/password", Method::Peap, USER, &wrong(tunnel("PEAP", "MSCHAPV2")))
            .refused("eap-refused"),
        Case::hostapd("aka", Method::Aka, &aka, "\"0\"* AKA\n"),
        Case::hostapd("aka-prime", Method::AkaPrime, &prime, "\"6\"* AKA'\n"),
        used(Case::hostapd("aka/refused/used-vector", Method::Aka, &aka, "\"0\"* AKA\n"))
            .refused("eap-sequence-number"),
    ]
}
