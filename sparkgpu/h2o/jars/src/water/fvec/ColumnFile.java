package water.fvec;

import water.DKV;
import water.Key;

/** Makes a frame of H2O from a file that holds its columns one after the other; nothing is parsed or copied. */
public final class ColumnFile {
  private ColumnFile() {}

  /**
   * Puts the frame {@code name} into H2O's store.
   *
   * @param texts the columns' names, their kinds (float32 or float64), where each begins in the file (in
   *     bytes), and then, for each column, the texts of its levels; none if it holds numbers
   */
  public static void frame(String name, String file, long rows, int rowsPerChunk, String[][] texts) {
    String[] names = texts[0];
    int chunks = (int) Math.max(1, (rows + rowsPerChunk - 1) / rowsPerChunk);
    long[] begins = new long[chunks + 1];
    for (int chunk = 0; chunk < chunks; chunk++) {
      begins[chunk] = (long) chunk * rowsPerChunk;
    }
    begins[chunks] = rows;
    Key<Vec>[] keys = new Vec.VectorGroup().addVecs(names.length);
    int rowLayout = Vec.ESPC.rowLayout(keys[0], begins);
    Vec[] vecs = new Vec[names.length];
    for (int column = 0; column < names.length; column++) {
      String[] levels = texts[3 + column];
      vecs[column] =
          new FileColumn(
              keys[column],
              rowLayout,
              levels.length == 0 ? null : levels,
              file,
              Long.parseLong(texts[2][column]),
              texts[1][column].equals("float64"));
      DKV.put(vecs[column]);
    }
    DKV.put(new Frame(Key.<Frame>make(name), names, vecs));
  }
}
