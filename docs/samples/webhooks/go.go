package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

const tolerance = 300 // seconds

// Verify reports whether body, as received, was signed with secret. header is Webhook-Signature.
func Verify(header string, body []byte, secret string, now time.Time) bool {
	var t string
	var signatures []string
	for _, part := range strings.Split(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "t":
			t = value
		case "v1":
			signatures = append(signatures, value)
		}
	}
	seconds, err := strconv.ParseInt(t, 10, 64)
	if err != nil || seconds < now.Unix()-tolerance || seconds > now.Unix()+tolerance {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t + "."))
	mac.Write(body)
	expected := mac.Sum(nil)
	// During a rotation there are two signatures: compare each, not only the first.
	genuine := false
	for _, signature := range signatures {
		given, err := hex.DecodeString(signature)
		genuine = (err == nil && hmac.Equal(given, expected)) || genuine
	}
	return genuine
}
