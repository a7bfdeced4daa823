//! Signatures of private keys on tokens. A signature of a smart card takes up to a second, so IKE asks for
//! it, goes on with other peers, and asks again when the token is done.

use super::OpenedKey;
use super::queue::{Answer, Claimant, Job, SignatureQueue, Wanted};
use crate::control::{ControlServer, Waker, signal};
use casemate::Notice;
use casemate_ike::{Event, IkeSaId, SignatureQuery, Signing};
use casemate_linux::EndpointHandle;
use casemate_pkcs11::TokenError;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Access to the signatures that were ordered.
#[derive(Clone)]
pub(crate) struct TokenLink(Arc<Orders>);

struct Orders {
    queue: Mutex<SignatureQueue<IkeSaId, OpenedKey>>,
    done: Sender<TokenReport>,
    waker: Waker,
}

/// What the event loop has to do.
enum TokenReport {
    /// A module has done its order for this IKE SA, or has failed.
    Done(IkeSaId),
    /// Orders were dropped, so that others have room.
    Room,
    /// A line for the log.
    Problem(String),
}

impl TokenLink {
    /// The signature of a query. Orders it if that has not happened.
    pub(crate) fn sign(&self, query: &SignatureQuery<'_>, opened: &OpenedKey) -> Signing {
        let (message, key) = (query.message.to_vec(), query.key.public_key().clone());
        let wanted = Wanted { message, alg: query.alg, key };
        let claimant = Claimant { ike: query.ike, remote: query.remote };
        let means = (opened.key.module().path(), opened);
        let answer = self.0.lock().ask(claimant, means, &wanted, query.is_last);
        match answer {
            Answer::Signed(signature) => Signing::Signed(signature),
            Answer::Pending => {
                self.0.start();
                Signing::Pending
            }
            Answer::Failed(why) => {
                why.into_iter().for_each(|why| self.0.report_failure(opened, why));
                Signing::Failed
            }
        }
    }
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, SignatureQueue<IkeSaId, OpenedKey>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the next order to each module that has none.
    fn start(self: &Arc<Self>) {
        loop {
            let Some(Job { ike, number, wanted, key }) = self.lock().start_next() else { return };
            let running =
                Running { orders: Arc::clone(self), ike, number, key: key.clone(), is_finished: false };
            let refused = key.key.sign_later(wanted.alg, wanted.message, move |result| running.end(result));
            if let Err(why) = refused {
                // The order has ended as well, because `running` was dropped.
                self.report_failure(&key, &why.to_string());
            }
        }
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

/// The order that a module does. If it is dropped, the order has failed: the thread of the module has ended.
struct Running {
    orders: Arc<Orders>,
    ike: IkeSaId,
    number: u64,
    key: OpenedKey,
    is_finished: bool,
}

impl Running {
    /// Ends the order with the result of the token.
    fn end(mut self, result: Result<Vec<u8>, TokenError>) {
        let (signature, failure) = match result {
            Ok(signature) => (Some(signature), None),
            Err(why) => (None, Some(why.to_string())),
        };
        if self.finish(signature)
            && let Some(why) = failure
        {
            self.orders.report_failure(&self.key, &why);
        }
    }

    fn finish(&mut self, signature: Option<Vec<u8>>) -> bool {
        self.is_finished = true;
        self.orders.lock().finish(self.ike, self.number, self.key.key.module().path(), signature)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_finished {
            self.finish(None);
        }
        self.orders.report(TokenReport::Done(self.ike));
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
        let link = TokenLink(Arc::new(Orders { queue: Mutex::default(), done, waker }));
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
                    proceed(handle, ike);
                    // The IKE SA may no longer need it.
                    link.0.lock().drop_done(ike);
                }
                TokenReport::Room => {}
                TokenReport::Problem(text) => problems.push(text),
            }
        }
        loop {
            let Some(ike) = link.0.lock().next_held_back() else { break };
            proceed(handle, ike);
        }
        link.0.start();
        problems
    }

    /// Drops the order of an IKE SA that has ended, before the token is asked.
    pub(crate) fn on_notice(&self, notice: &Notice) {
        if let (Notice::Ike(Event::IkeDown { ike, .. }), Some((link, _))) = (notice, &self.0)
            && link.0.lock().cancel(*ike)
        {
            link.0.report(TokenReport::Room);
        }
    }
}

fn proceed(handle: &EndpointHandle<'_>, ike: IkeSaId) {
    handle.lock().with(|endpoint, context| endpoint.continue_authentication(ike, context));
}
