//! Signatures of private keys on tokens. A signature of a smart card takes up to a second, so IKE asks for
//! it, goes on with other peers, and asks again when the token is done.

use super::OpenedKey;
use crate::control::{ControlServer, Waker, signal};
use casemate_ike::{IkeSaId, SignatureQuery, Signing};
use casemate_linux::EndpointHandle;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Access to the signatures that were ordered.
#[derive(Clone)]
pub(crate) struct TokenLink(Arc<Orders>);

struct Orders {
    /// One signature for each IKE SA.
    orders: Mutex<HashMap<IkeSaId, Order>>,
    done: Sender<TokenReport>,
    waker: Waker,
}

struct Order {
    message: Vec<u8>,
    /// `None` while the token works.
    result: Option<Result<Vec<u8>, String>>,
}

/// What the event loop has to do.
enum TokenReport {
    /// The signature of this IKE SA is there, or has failed.
    Done(IkeSaId),
    /// A line for the log.
    Problem(String),
}

impl TokenLink {
    /// The signature of a query. Orders it if that has not happened.
    pub(crate) fn sign(&self, query: &SignatureQuery<'_>, opened: &OpenedKey) -> Signing {
        let mut orders = self.0.lock();
        let known = orders.get(&query.ike).filter(|order| order.message == query.message);
        match known.map(|order| order.result.clone()) {
            Some(Some(result)) => {
                orders.remove(&query.ike);
                result.map_or(Signing::Failed, Signing::Signed)
            }
            Some(None) if query.is_last => {
                orders.remove(&query.ike);
                self.0.report_failure(opened, "it has made no signature in time");
                Signing::Failed
            }
            Some(None) => Signing::Pending,
            None if query.is_last => Signing::Failed,
            None => {
                orders.insert(query.ike, Order { message: query.message.to_vec(), result: None });
                drop(orders);
                self.order(query, opened)
            }
        }
    }

    fn order(&self, query: &SignatureQuery<'_>, opened: &OpenedKey) -> Signing {
        let (shared, key, ike) = (Arc::clone(&self.0), opened.clone(), query.ike);
        let message = query.message.to_vec();
        let finish = move |result: Result<Vec<u8>, casemate_pkcs11::TokenError>| {
            shared.finish(ike, &key, &message, result.map_err(|why| why.to_string()));
        };
        match opened.key.sign_later(query.alg, query.message.to_vec(), finish) {
            Ok(()) => Signing::Pending,
            Err(why) => {
                self.0.lock().remove(&ike);
                self.0.report_failure(opened, &why.to_string());
                Signing::Failed
            }
        }
    }
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, HashMap<IkeSaId, Order>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a result, unless the IKE SA has ended or needs another signature by now.
    fn finish(&self, ike: IkeSaId, key: &OpenedKey, message: &[u8], result: Result<Vec<u8>, String>) {
        let mut orders = self.lock();
        let Some(order) = orders.get_mut(&ike).filter(|order| order.message == message) else { return };
        let failure = result.as_ref().err().cloned();
        order.result = Some(result);
        drop(orders);
        if let Some(why) = failure {
            self.report_failure(key, &why);
        }
        self.report(TokenReport::Done(ike));
    }

    fn report_failure(&self, key: &OpenedKey, why: &str) {
        self.report(TokenReport::Problem(format!("{}: {why}", key.path.display())));
    }

    fn report(&self, report: TokenReport) {
        // At the end of the program there is no receiver.
        let _ = self.done.send(report);
        signal(&self.waker.0);
    }
}

/// The part of the controller of a run that has messages signed by tokens.
#[derive(Default)]
pub(crate) struct TokenState(Option<(TokenLink, Receiver<TokenReport>)>);

impl TokenState {
    /// The link for a keyring that is about to be used.
    pub(crate) fn link(&mut self, control: &ControlServer) -> Result<TokenLink, String> {
        if let Some((link, _)) = &self.0 {
            return Ok(link.clone());
        }
        let waker = control.waker().map_err(|error| format!("signatures of tokens: {error}"))?;
        let (done, received) = channel();
        let link = TokenLink(Arc::new(Orders { orders: Mutex::default(), done, waker }));
        self.0 = Some((link.clone(), received));
        Ok(link)
    }

    /// Continues with the peers for which a token is done. Returns lines for the log.
    pub(crate) fn serve(&mut self, handle: &EndpointHandle<'_>) -> Vec<String> {
        let Some((link, reports)) = &self.0 else { return Vec::new() };
        let mut problems = Vec::new();
        for report in reports.try_iter() {
            match report {
                TokenReport::Done(ike) => {
                    handle.lock().with(|endpoint, context| endpoint.continue_authentication(ike, context));
                    // The IKE SA may have ended before the token was done.
                    link.0.lock().retain(|of, order| *of != ike || order.result.is_none());
                }
                TokenReport::Problem(text) => problems.push(text),
            }
        }
        problems
    }
}
