use serde_json::{Value, json};

use super::{
    operation::Reader,
    schema::{Row, Schemas},
};

fn document() -> Value {
    json!({
        "servers": [{ "url": "https://id.example" }],
        "tags": [{ "name": "trees" }],
        "components": { "responses": { "Problem409OtherTooTall": {
            "description": "- `too_tall`: It is: too tall.\n- `other`: No.",
            "content": { "application/problem+json": {
                "schema": { "$ref": "#/components/schemas/Problem409OtherTooTall" },
            } },
        } }, "schemas": {
            "Problem409OtherTooTall": { "type": "object", "properties": { "code": { "enum": ["other", "too_tall"] } } },
            "Tree": {
                "type": "object", "required": ["name"],
                "properties": {
                    "name": { "type": "string", "minLength": 1, "maxLength": 9 },
                    "children": { "type": "array", "items": { "$ref": "#/components/schemas/Tree" } },
                    "parent": { "anyOf": [{ "$ref": "#/components/schemas/Tree" }, { "type": "null" }] },
                    "leaf": { "$ref": "#/components/schemas/Leaf" },
                },
            },
            "Leaf": { "type": "object", "description": "One\n leaf.", "properties": {
                "color": { "type": ["string", "null"], "pattern": "^#[0-9a-f]{6}$" },
            } },
            "Round": { "$ref": "#/components/schemas/Round" },
            "Kind": { "enum": ["oak", "it's"] },
        } },
        "paths": { "/trees/{treeId}": {
            "post": {
                "operationId": "trees.grow", "tags": ["trees"], "summary": "grow <b>it</b>", "x-role": "admin",
                "security": [{ "appKey": [], "bearer": [] }, { "appKey": [], "cookie": [] }],
                "parameters": [
                    { "in": "path", "name": "treeId", "required": true, "schema": { "type": "string" } },
                    { "in": "query", "name": "kind", "required": true, "schema": { "$ref": "#/components/schemas/Kind" } },
                ],
                "requestBody": { "content": { "application/json": {
                    "schema": { "$ref": "#/components/schemas/Tree" },
                } } },
                "responses": {
                    "200": { "description": "OK", "content": { "application/json": {
                        "schema": { "$ref": "#/components/schemas/Tree" },
                    } } },
                    "409": { "$ref": "#/components/responses/Problem409OtherTooTall" },
                },
            },
        } },
    })
}

#[test]
fn a_schema_is_read_as_rows_and_one_that_leads_back_to_itself_ends() {
    let document = document();
    let schemas = Schemas(&document);
    let tree = &document["components"]["schemas"]["Tree"];
    let by_name = json!({ "$ref": "#/components/schemas/Tree" });
    let mut rows = schemas.rows(&by_name);
    // In the order of the document or of the alphabet: which, is for whoever else is built along to say.
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["children", "leaf", "leaf.color", "name", "parent"], "each level once");
    let color = Row {
        name: "leaf.color".into(),
        depth: 1,
        kind: "string or null".into(),
        required: false,
        about: "Must match ^#[0-9a-f]{6}$".into(),
    };
    assert_eq!(rows[2], color);
    assert_eq!((rows[1].about.as_str(), rows[3].about.as_str()), ("One leaf.", "1 to 9 characters."));
    assert!(rows[3].required && rows[0].kind == "list of object" && rows[4].kind == "object or null", "{rows:?}");
    assert!(schemas.rows(tree).len() < 50, "not by its name either");
    let round = json!({ "$ref": "#/components/schemas/Round" });
    assert_eq!((schemas.rows(&round).len(), schemas.kind(&round).as_str()), (0, "anything"));
    let example = schemas.example(tree);
    assert_eq!((&example["name"], &example["leaf"]["color"]), (&json!("Ada"), &json!("#1d4ed8")), "what fits");
    assert!(example.to_string().len() < 5_000, "examples end, too");
}

#[test]
fn an_operation_says_who_may_and_how_it_is_called() {
    let document = document();
    let reader = Reader::new(&document);
    let operations = serde_json::to_value(reader.operations("trees")).unwrap();
    let grow = &operations[0];
    assert_eq!(grow["who"], "An app key and a signed-in user. Role: admin of the organization or higher.");
    let curl = grow["curl"].as_str().unwrap();
    assert!(curl.starts_with("curl -X POST 'https://id.example/trees/TREE_ID?kind=oak' \\\n"), "{curl}");
    assert!(curl.contains("-H \"X-Service-App-Key: $APP_KEY\"") && curl.contains("Bearer $TOKEN"), "{curl}");
    let tried: Value = serde_json::from_str(grow["attempt"].as_str().unwrap()).unwrap();
    let fields: Vec<_> = tried["fields"].as_array().unwrap().iter().map(|field| field["name"].clone()).collect();
    assert_eq!(fields, ["treeId", "kind", "X-Service-App-Key"], "the session is in the cookies");
    assert_eq!(grow["answers"].as_array().unwrap().len(), 1, "a refusal is none");
    // With one operation everything is what all may answer.
    assert_eq!(grow["refusals"], json!([]));
    let everywhere = serde_json::to_value(reader.everywhere()).unwrap();
    assert_eq!(everywhere[1], json!({ "status": "409", "code": "too_tall", "says": "It is: too tall." }));
    assert!(reader.operations("shrubs").is_empty());
}
