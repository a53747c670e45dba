import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Collection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;

/**
 * Answers each line of standard input with an error or an empty line. "port file": connects to the port and trusts the
 * CAs of the file. "client file file": verifies the client's chain of the second file with the CAs of the first one.
 */
public class Client {
    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] question = line.split(" ");
            boolean isClient = question[0].equals("client");
            System.out.println(
                isClient ? login(question[1], question[2]) : connect(Integer.parseInt(question[0]), question[1]));
        }
    }

    static Collection<? extends Certificate> read(String file) throws Exception {
        return CertificateFactory.getInstance("X.509").generateCertificates(new FileInputStream(file));
    }

    static TrustManager[] trust(String file) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        int number = 0;
        for (Certificate ca : read(file)) {
            store.setCertificateEntry("ca" + number++, ca);
        }
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        return managers.getTrustManagers();
    }

    static String login(String trust, String file) throws Exception {
        X509Certificate[] chain = read(file).toArray(new X509Certificate[0]);
        try {
            ((X509TrustManager) trust(trust)[0]).checkClientTrusted(chain, chain[0].getPublicKey().getAlgorithm());
            return "";
        } catch (CertificateException refused) {
            return refused.getMessage().replace('\n', ' ');
        }
    }

    static String connect(int port, String file) throws Exception {
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust(file), null);
        try (SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket("localhost", port)) {
            SSLParameters parameters = socket.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            socket.setSSLParameters(parameters);
            socket.startHandshake();
            return "";
        } catch (javax.net.ssl.SSLException refused) {
            return refused.getMessage().replace('\n', ' ');
        }
    }
}
