// Verifies certificate chains with Go's crypto/x509: a JSON list of cases on standard input, a list of errors on
// standard output, each empty if the chain is accepted.
package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
)

type question struct{ Purpose, Trust, Chain string }

func main() {
	var questions []question
	if err := json.NewDecoder(os.Stdin).Decode(&questions); err != nil {
		panic(err)
	}
	answers := []string{}
	for _, q := range questions {
		answers = append(answers, verdict(q))
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		panic(err)
	}
}

func verdict(q question) string {
	certificates := []*x509.Certificate{}
	for rest := []byte(q.Chain); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err.Error()
		}
		certificates = append(certificates, certificate)
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	if !options.Roots.AppendCertsFromPEM([]byte(q.Trust)) {
		return "no trust anchor"
	}
	for _, certificate := range certificates[1:] {
		options.Intermediates.AddCert(certificate)
	}
	options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if q.Purpose == "server" {
		options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		options.DNSName = "localhost"
	}
	if _, err := certificates[0].Verify(options); err != nil {
		return err.Error()
	}
	return ""
}
