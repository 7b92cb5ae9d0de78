//! The picture a person has at the provider they signed in with last.
use axum::extract::State;
use db::Reach;
use kernel::{
    Janua,
    fault::{Code, Result, UNAUTHENTICATED},
    http::{Json, Routes},
    transact,
};
use tenancy::{
    accounts::{Account, social::Identity},
    enter::{ACCOUNT_TOPIC, AnySession},
    sessions::sign_in::UserView,
};

use crate::events::ProfileUpdated;

pub fn routes() -> Routes {
    Routes::new("account")
        .post("/user/avatar/restore-from-oauth", restore_avatar, "restore avatar from the linked provider")
        .fails(&[NO_LINKED_PICTURE])
}

const NO_LINKED_PICTURE: Code = Code::new(409, "no_linked_picture", "None of your linked accounts has a picture.");

async fn restore_avatar(State(janua): State<Janua>, AnySession(session): AnySession) -> Result<Json<UserView>> {
    let id = session.account().id;
    let linked = Identity::of(&janua.db, id).await?;
    let url = linked.into_iter().find_map(|identity| identity.avatar_url).ok_or(NO_LINKED_PICTURE)?;
    let account = transact!(janua, async |tx| {
        Account::set_avatar(tx, id, &url, janua.clock.now()).await?;
        let event = ProfileUpdated { fields: vec!["avatarUrl"] };
        session.record(tx, &janua, &event).await?;
        tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, id.to_string()).await?;
        Ok(Account::find(tx, id).await?.ok_or(UNAUTHENTICATED)?)
    })?;
    Ok(Json(UserView::seen_in(&session.living.session, &account, session.factors())))
}
