// Save as main.go, run `env $(cat .env) go run main.go`, open http://localhost:3000
package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"strings"
)

var (
	issuer      = setting("ISSUER", "https://id.example.com")
	clientID    = setting("CLIENT_ID", "YOUR_CLIENT_ID")
	redirectURL = setting("REDIRECT_URL", "http://localhost:3000/callback")
)

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func random() string {
	bytes := make([]byte, 32)
	if _, err := rand.Read(bytes); err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(bytes)
}

func login(w http.ResponseWriter, r *http.Request) {
	state, verifier := random(), random()
	digest := sha256.Sum256([]byte(verifier))
	query := url.Values{
		"response_type": {"code"}, "client_id": {clientID}, "redirect_uri": {redirectURL},
		"scope": {"openid profile email"}, "state": {state}, "code_challenge_method": {"S256"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(digest[:])},
	}
	http.SetCookie(w, &http.Cookie{
		Name: "pending", Value: state + "." + verifier, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	http.Redirect(w, r, issuer+"/oauth/authorize?"+query.Encode(), http.StatusFound)
}

func finish(r *http.Request) (string, error) {
	cookie, err := r.Cookie("pending")
	if err != nil {
		return "", errors.New("This sign-in was not started here.")
	}
	state, verifier, _ := strings.Cut(cookie.Value, ".")
	query := r.URL.Query()
	if state == "" || query.Get("state") != state {
		return "", errors.New("This sign-in was not started here.")
	}
	if query.Has("error") {
		return "", errors.New(query.Get("error") + ": " + query.Get("error_description"))
	}
	answer, err := http.PostForm(issuer+"/oauth/token", url.Values{
		"grant_type": {"authorization_code"}, "client_id": {clientID}, "redirect_uri": {redirectURL},
		"code": {query.Get("code")}, "code_verifier": {verifier},
	})
	if err != nil {
		return "", err
	}
	var tokens struct {
		AccessToken string `json:"access_token"`
		Error       string `json:"error"`
	}
	if err := read(answer, &tokens); err != nil || tokens.Error != "" {
		return "", fmt.Errorf("the code was refused: %s %v", tokens.Error, err)
	}
	request, err := http.NewRequest("GET", issuer+"/oauth/userinfo", nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+tokens.AccessToken)
	if answer, err = http.DefaultClient.Do(request); err != nil {
		return "", err
	}
	var user struct {
		Email string `json:"email"`
	}
	return user.Email, read(answer, &user)
}

func read(answer *http.Response, into any) error {
	defer answer.Body.Close()
	return json.NewDecoder(answer.Body).Decode(into)
}

func main() {
	address, err := url.Parse(redirectURL)
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/login", login)
	http.HandleFunc(address.Path, func(w http.ResponseWriter, r *http.Request) {
		email, err := finish(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: "pending", Path: "/", MaxAge: -1})
		fmt.Fprintf(w, "Signed in as %s.\n", email)
	})
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<a href="/login">Sign in</a>`)
	})
	fmt.Println("Open", address.Scheme+"://"+address.Host)
	log.Fatal(http.ListenAndServe(address.Host, nil))
}
