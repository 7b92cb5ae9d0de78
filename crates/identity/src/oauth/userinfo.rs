//! Who a token is about, in the words of OpenID Connect.
use kernel::http::{Json, Routes};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{accounts::AccountId, enter::Session};

pub fn routes() -> Routes {
    Routes::new("oauth").get("/oauth/userinfo", userinfo, "who the access token is about").post(
        "/oauth/userinfo",
        userinfo_by_post,
        "who the access token is about",
    )
}

#[derive(Serialize, JsonSchema)]
struct UserInfo {
    sub: AccountId,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    picture: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    email_verified: bool,
    /// Seconds since 1970.
    updated_at: i64,
}

async fn userinfo(session: Session) -> Json<UserInfo> {
    let account = session.account();
    Json(UserInfo {
        sub: account.id,
        name: account.name.clone(),
        picture: account.avatar_url.clone(),
        email: account.email.clone(),
        email_verified: account.email_verified,
        updated_at: account.updated_at.0.div_euclid(1000),
    })
}

async fn userinfo_by_post(session: Session) -> Json<UserInfo> {
    userinfo(session).await
}
