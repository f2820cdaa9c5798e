package water.init;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import water.H2O;
import water.util.Log;

/**
 * Stands in for H2O's class of the same name, which digests its whole jar at every start: 240 MB, most of the
 * time that H2O needs to start. The nodes of a cloud compare the digests to see whether they run the same jar;
 * the end of the jar is its directory, with the size and the checksum of each entry, and tells that as well.
 * Found first because this jar opens the class path.
 */
public abstract class JarHash {
  private static final int DIGESTED_BYTES = 8 << 20;
  private static final String[] FOLDERS = {"resources/www", "resources/main/www", "www"};

  public static final byte[] JARHASH = digest();

  /** Of the jar's size and last bytes; as in H2O's own class, all bits are set where H2O is in no jar. */
  private static byte[] digest() {
    byte[] none = new byte[16];
    Arrays.fill(none, (byte) 0xFF);
    try {
      File jar = new File(H2O.class.getProtectionDomain().getCodeSource().getLocation().toURI());
      if (!jar.isFile()) {
        return none;
      }
      try (RandomAccessFile file = new RandomAccessFile(jar, "r")) {
        byte[] last = new byte[(int) Math.min(file.length(), DIGESTED_BYTES)];
        file.seek(file.length() - last.length);
        file.readFully(last);
        MessageDigest digest = MessageDigest.getInstance("MD5");
        digest.update(Long.toString(file.length()).getBytes(StandardCharsets.US_ASCII));
        return digest.digest(last);
      }
    } catch (IOException | URISyntaxException | NoSuchAlgorithmException error) {
      Log.err("H2O's jar cannot be read", error);
      return none;
    }
  }

  /** Registers nothing: these folders exist only where H2O runs from its sources. */
  public static void registerResourceRoot(File folder) {}

  /** A file of the REST interface; null if there is none. */
  public static InputStream getResource2(String name) {
    for (String folder : FOLDERS) {
      InputStream found = JarHash.class.getClassLoader().getResourceAsStream(folder + name);
      if (found != null) {
        return found;
      }
    }
    Log.warn("Resource not found: " + name);
    return null;
  }

  /** Marks of H2O's own distributions, of which this is none. */
  public static List<String> getResourcesList(String folder) {
    return Collections.emptyList();
  }
}
