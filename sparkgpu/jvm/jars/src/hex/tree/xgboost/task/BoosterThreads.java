package hex.tree.xgboost.task;

import ai.h2o.xgboost4j.java.BoosterWrapper;
import ai.h2o.xgboost4j.java.XGBoostError;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import water.Key;

/**
 * Changes the number of threads of a booster while H2O grows its trees on this node.
 *
 * <p>H2O hands each piece of work on a booster to the one thread that owns it, through a pair of queues. The
 * new number goes the same way, so it is set between two rounds, and whoever asks next waits for it. H2O
 * keeps queues and booster private; all names below are those of 3.46.
 */
public final class BoosterThreads {
  private static final long LOOK_MS = 200;

  private BoosterThreads() {}

  /** Whether the booster of this model grows from its next round on with so many threads; false: none grows. */
  public static boolean set(String model, int threads) throws ReflectiveOperationException, InterruptedException {
    Map<?, ?> updaters = (Map<?, ?>) field("updaters").get(null);
    Object updater = updaters.get(Key.make(model));
    return updater != null && hand(threads, (XGBoostUpdater) updater);
  }

  private static boolean hand(int threads, XGBoostUpdater updater)
      throws ReflectiveOperationException, InterruptedException {
    @SuppressWarnings("unchecked")
    SynchronousQueue<Object> in = (SynchronousQueue<Object>) field("_in").get(updater);
    @SuppressWarnings("unchecked")
    SynchronousQueue<Object> out = (SynchronousQueue<Object>) field("_out").get(updater);
    if (in == null || out == null) return false; // it has just ended
    Object work = work((proxy, method, arguments) -> apply(threads, updater));
    // An updater that ends takes no more work, so look now and then whether it still lives.
    while (!in.offer(work, LOOK_MS, TimeUnit.MILLISECONDS)) if (!updater.isAlive()) return false;
    while (true) {
      Object result = out.poll(LOOK_MS, TimeUnit.MILLISECONDS);
      if (result != null) return (Boolean) result;
      if (!updater.isAlive()) return false;
    }
  }

  /** In the updater's own thread. */
  private static Boolean apply(int threads, XGBoostUpdater updater) throws IllegalAccessException, XGBoostError {
    BoosterWrapper booster;
    try {
      booster = (BoosterWrapper) field("_booster").get(updater);
    } catch (NoSuchFieldException e) {
      throw new IllegalStateException(e);
    }
    if (booster == null) return false; // before the first tree
    booster.getBooster().setParam("nthread", threads);
    return true;
  }

  /** A piece of work in the form that an updater takes. */
  private static Object work(InvocationHandler work) throws ClassNotFoundException {
    Class<?> form = Class.forName(XGBoostUpdater.class.getName() + "$BoosterCallable");
    return Proxy.newProxyInstance(form.getClassLoader(), new Class<?>[] {form}, work);
  }

  private static Field field(String name) throws NoSuchFieldException {
    Field field = XGBoostUpdater.class.getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }
}
