//! Signing out because a client asks for it (OpenID Connect RP-Initiated Logout).
use kernel::{Janua, fault::Result, transact};
use tenancy::{
    enter,
    sessions::{
        self,
        id_tokens::{self, IdClaims},
    },
};
use url::form_urlencoded::{Serializer, parse};

use super::clients::{Client, Reach};

/// What a client asks for.
pub struct Request {
    /// Who it says was signed in; its signature is ours.
    hint: Option<IdClaims>,
    pub client: Option<Client>,
    back: Option<String>,
}

impl Request {
    /// What cannot be believed is left out: somebody who wants to leave is not kept by a parameter.
    pub async fn read(janua: &Janua, query: &str) -> Result<Self> {
        let get = |wanted: &str| {
            let mut pairs = parse(query.as_bytes()).filter(|(name, value)| name == wanted && !value.is_empty());
            pairs.next().map(|(_, value)| value.into_owned()).filter(|_| pairs.next().is_none())
        };
        let said = get("client_id");
        let hint = get("id_token_hint").and_then(|token| id_tokens::read_hint(janua, &token));
        // The two must agree.
        let hint = hint.filter(|hint| said.as_ref().is_none_or(|id| *id == hint.aud));
        let client = match said.or_else(|| hint.as_ref().map(|hint| hint.aud.clone())) {
            Some(id) => Client::find(janua, Reach::Known, &id).await?,
            None => None,
        };
        let back = get("post_logout_redirect_uri")
            // Anybody can be a client that is no app: it must have known somebody.
            .filter(|_| hint.is_some() || client.as_ref().is_some_and(|client| client.app.is_some()))
            .filter(|uri| client.as_ref().is_some_and(|client| client.may_leave_to(uri)))
            .map(|uri| match get("state") {
                Some(state) => {
                    let joint = if uri.contains('?') { '&' } else { '?' };
                    let state = Serializer::new(String::new()).append_pair("state", &state).finish();
                    format!("{uri}{joint}{state}")
                }
                None => uri,
            });
        Ok(Self { hint, client, back })
    }

    /// Where the person goes afterwards, if that is the client's.
    pub fn back(&self) -> Option<&str> {
        self.back.as_deref()
    }

    /// Whether the client knows who is signed in here, so that nobody has to be asked: any page can send people here.
    pub fn is_sure(&self, who: Option<&enter::Session>) -> bool {
        let Some(session) = who else { return true };
        self.hint.as_ref().is_some_and(|hint| hint.sub == session.account().id)
    }

    /// Ends the session of the browser, and the one of the client that asks. Answers where to go.
    pub async fn leave(self, janua: &Janua, who: Option<&enter::Session>) -> Result<Option<String>> {
        let browser = who.map(|session| (session.account().id, session.id()));
        let given = self.hint.as_ref().map(|hint| (hint.sub, hint.sid));
        // Of a client's session only its own person's hint ends it.
        let given = given.filter(|(sub, _)| browser.is_none_or(|(account, _)| account == *sub));
        let by = who.map(enter::Session::by).unwrap_or_default();
        transact!(janua, async |tx| {
            for (account, id) in browser.into_iter().chain(given) {
                sessions::end(tx, janua, &by, account, id, "signed_out").await?;
            }
            Ok(())
        })?;
        Ok(self.back)
    }
}
