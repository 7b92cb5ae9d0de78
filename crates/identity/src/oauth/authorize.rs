//! The authorization endpoint (RFC 6749 with PKCE, OpenID Connect): what happens next with somebody a client sent here.
//!
//! Decided here, shown elsewhere: the pages ask [`next`] and [`decide`] and draw what they say.

use kernel::{
    Janua,
    fault::{Result, UNAUTHENTICATED},
    transact,
};
use tenancy::{
    apps::end_users,
    enter::Session,
    sessions::{id_tokens, sign_in::BLOCKED_FROM_APP},
};

use super::{
    clients::Reach,
    codes,
    consents::{Agreed, Consent},
    request::{Reading, Reply, Request},
};

/// What happens next.
pub enum Step {
    /// Back to the client.
    Go(Reply),
    SignIn(Box<Request>),
    AskConsent(Box<Request>),
}

pub async fn next(janua: &Janua, reach: Reach<'_>, who: Option<&Session>, query: &str) -> Result<Step> {
    let request = match Request::read(janua, reach, query).await? {
        Reading::Good(request) => request,
        Reading::Refused(to) => return Ok(Step::Go(to)),
    };
    let Some(session) = good_enough(janua, who, &request) else {
        if request.prompt.nothing {
            if request.client.app.is_none() {
                return Err(UNAUTHENTICATED.into());
            }
            let to = request.refuse(janua, "login_required", "The user is not signed in, or not recently enough.");
            return Ok(Step::Go(to));
        }
        return Ok(Step::SignIn(request));
    };
    if let Some(refused) = blocked(janua, session, &request).await? {
        return Ok(Step::Go(refused));
    }
    if needs_consent(janua, session, &request).await? {
        if request.prompt.nothing {
            return Ok(Step::Go(request.refuse(janua, "consent_required", "The user has not consented.")));
        }
        return Ok(Step::AskConsent(request));
    }
    let code = transact!(janua, async |tx| Ok(codes::issue(tx, janua, session.id(), &request).await?))?;
    Ok(Step::Go(request.answer(janua, &[("code", code.expose())])))
}

/// The person agreed, or did not. Everything is looked at again: the page may be old, and the request is what it says.
pub async fn decide(janua: &Janua, who: Option<&Session>, query: &str, agrees: bool) -> Result<Reply> {
    let request = match Request::read(janua, Reach::Known, query).await? {
        Reading::Good(request) => request,
        Reading::Refused(to) => return Ok(to),
    };
    if !agrees {
        return Ok(request.refuse(janua, "access_denied", "The user denied access."));
    }
    let session = good_enough(janua, who, &request).ok_or(UNAUTHENTICATED)?;
    if let Some(refused) = blocked(janua, session, &request).await? {
        return Ok(refused);
    }
    let code = transact!(janua, async |tx| {
        let (client, resource) = (&request.client, request.resource.as_ref().map(ToString::to_string));
        let app_id = client.app.as_ref().map(|owned| owned.id);
        let agreed = Agreed {
            client: &client.id,
            app_id,
            name: &client.name,
            resource: resource.as_deref(),
            scopes: &request.scopes,
            place: &request.place(),
        };
        agreed.remember(tx, janua, &session.by(), session.account().id).await?;
        Ok(codes::issue(tx, janua, session.id(), &request).await?)
    })?;
    Ok(request.answer(janua, &[("code", code.expose())]))
}

/// The session, if it is enough for what is asked: behind the second factor, fresh where that is wanted, of the person
/// who was meant, and not another app's word.
fn good_enough<'a>(janua: &Janua, who: Option<&'a Session>, request: &Request) -> Option<&'a Session> {
    let session = who.filter(|session| session.passed_gate())?;
    let since = session.living.session.authenticated_at;
    let is_fresh = request.not_before(janua.clock.now()).is_none_or(|moment| moment <= since);
    let hinted = request.id_token_hint.as_deref().map(|hint| id_tokens::read_hint(janua, hint));
    let is_meant = hinted.is_none_or(|hint| hint.is_some_and(|claims| claims.sub == session.account().id));
    let asks = request.client.app.as_ref().map(|owned| owned.id);
    let may_answer = session.may_let_in(asks, request.resource.as_ref());
    Some(session).filter(|_| is_fresh && is_meant && may_answer)
}

/// The refusal for a person whom the app has blocked. The code exchange looks again.
async fn blocked(janua: &Janua, session: &Session, request: &Request) -> Result<Option<Reply>> {
    let Some(app) = &request.client.app else { return Ok(None) };
    let is_blocked = end_users::is_blocked(&janua.db, app.id, session.account().id).await?;
    let said = format!("{}: {}", BLOCKED_FROM_APP.name, BLOCKED_FROM_APP.says);
    Ok(is_blocked.then(|| request.refuse(janua, "access_denied", &said)))
}

async fn needs_consent(janua: &Janua, session: &Session, request: &Request) -> Result<bool> {
    let account = session.account().id;
    if request.prompt.consent {
        return Ok(true);
    }
    if request.client.is_of_their_own(&janua.db, account, &request.targets).await? {
        return Ok(false);
    }
    let (client, resource) = (&request.client, request.resource.as_ref().map(ToString::to_string));
    // Any program on the person's machine can listen where a native one does, so a yes to one is none to the next
    // (RFC 8252, 8.6). A port that the app registered is its developer's server.
    let is_web = request.redirect_uri.starts_with("https://");
    if !is_web && !client.has_registered_port(&request.redirect_uri) {
        return Ok(true);
    }
    let known = Consent::find(&janua.db, account, &client.id, resource.as_deref()).await?;
    let Some(known) = known else { return Ok(true) };
    // A client that is no app can be somebody else tomorrow, and what listens on a port, too: the yes must have been for
    // this very place.
    let is_where_it_was = (is_web && client.app.is_some()) || known.place == request.place();
    Ok(!known.scopes.covers(&request.scopes) || !is_where_it_was)
}
