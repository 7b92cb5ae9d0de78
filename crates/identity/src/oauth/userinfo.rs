//! Who a token is about, in the words of OpenID Connect, as far as its scopes let the client know.
use kernel::http::{Json, Routes};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{accounts::AccountId, enter::Granted, sessions::id_tokens::About};

pub fn routes() -> Routes {
    Routes::new("oauth")
        .get("/oauth/userinfo", userinfo, "claims about the user of the access token")
        .for_any_origin()
        .post("/oauth/userinfo", userinfo_by_post, "claims about the user of the access token")
        .for_any_origin()
}

#[derive(Serialize, JsonSchema)]
struct UserInfo {
    sub: AccountId,
    #[serde(flatten)]
    about: About,
}

async fn userinfo(caller: Granted) -> Json<UserInfo> {
    let account = caller.0.account();
    Json(UserInfo { sub: account.id, about: About::of(account, &caller.scopes()) })
}

async fn userinfo_by_post(caller: Granted) -> Json<UserInfo> {
    userinfo(caller).await
}
